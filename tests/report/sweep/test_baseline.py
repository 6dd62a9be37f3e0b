"""The full cache of a sweep is what kept every token, however that was asked for; the others are told beside it."""

from pathlib import Path

import pytest
from test_agreement import ROW

from harness.report.sweep import baseline, heading, summary

AXES = ["prune.ratio"]
WHOLE = {"kept_tokens": 97, "verdict": "equivalent", "outcome": "equivalent", "error_ratio": 1.0}


def swept(**whole: object) -> list[dict]:
    told = {"verdict": "drifted", "outcome": "drifted", "prune": "snapkv", "quantize": "none"}
    return [
        ROW | told | {"point": "0", "prune.ratio": "0.5"},
        ROW | told | {"point": "1", "prune.ratio": "1.0", **WHOLE, **whole},
    ]


def test_a_budget_that_kept_every_token_is_what_the_others_are_beside(tmp_path: Path) -> None:
    rows = swept()
    assert baseline.tried(rows, AXES) == rows[:1]
    said = "Beside prune.ratio=1.0, the full cache: prune.ratio=0.5 (drifted, 90 bytes on disk)."
    assert summary.told(rows, {})[1] == said
    assert said in heading.told(tmp_path, rows, AXES, {}, 2, 0)[1]
    assert f"conclusion:   {said}" in summary.closing(tmp_path, rows, None, [])
    stopped = [rows[0] | {"verdict": "failed", "outcome": "failed", "exit_code": 3}, rows[1]]
    assert "prune.ratio=0.5 (" not in summary.told(stopped, {})[1]


@pytest.mark.parametrize("whole", [{"pruned": True}, {"kept_tokens": None}])
def test_what_let_go_of_something_is_not(whole: dict) -> None:
    rows = swept(**whole)
    assert baseline.tried(rows, AXES) == rows and "Beside" not in summary.told(rows, {})[1]


def test_a_quantizer_beside_none_of_a_pruned_state_has_no_full_cache_and_is_beside_what_was_varied() -> (
    None
):
    rows = [
        ROW | {"point": str(i), "prune": "snapkv", "quantize": codes}
        for i, codes in enumerate(("none", "int8"))
    ]
    assert baseline.tried(rows, ["quantize"]) == rows[1:]
    assert "Beside quantize=none: " in baseline.beside_full("The best", rows, ["quantize"])
    rows = [row | {"prune": "none"} for row in rows]
    assert "quantize=none, the full cache: " in baseline.beside_full("The best", rows, ["quantize"])
