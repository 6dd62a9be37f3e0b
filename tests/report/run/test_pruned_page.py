"""Pages of pruned runs and of sweeps of them: the restore and the pruning are two verdicts."""

import html
import re
from pathlib import Path

import pytest

from harness.report import badge, sweep
from harness.report import html as pages
from harness.report.picture import scatter
from harness.report.run import kept_tokens, yardstick
from harness.report.run import page as run
from harness.results.sweep import sweep_of

RESULT = {
    "verdict": "diverged", "required": "diverged", "pruned": True, "task": "experiment", "oracle": {},
    "itself": {"verdict": "equivalent", "against": "saved", "required": "equivalent"},
}  # fmt: skip
ROW = {
    "point": "0", "verdict": "diverged", "outcome": "diverged", "exit_code": 0, "restore": "equivalent",
    "reason": "step 2 chooses another token", "task": "experiment", "prune": "snapkv", "prune.ratio": "0.25",
    "kl_mean": 0.13, "kl_max": 1.0, "max_abs_diff": 2.0, "error_ratio": 3.8e5, "first_divergence": 1,
    "noise_kl_max": 1e-12, "tokens": 97, "kept_tokens": 24, "kv_bytes": 9, "stored_bytes": 140796, "per_token_s": 0.1,
    "save_s": 0.9, "load_s": 0.3, "mutated": False, "folder": "runs/the-sweep/0",
}  # fmt: skip
MORE = {
    "point": "1", "prune.ratio": "0.5", "kept_tokens": 48, "kl_mean": 0.131, "stored_bytes": 190716,
    "save_s": 0.1, "folder": "runs/the-sweep/1",
}  # fmt: skip


def tones(result: dict) -> dict[str, str]:
    return {pill["text"]: pill["kind"] for pill in badge.pills(result)}


def headline(page: str) -> str:
    """The conclusion, its pills aside."""
    return html.unescape(re.findall('<p class="conclusion">(.*?)</p>', page, re.S)[-1])


def test_a_pruned_run_has_a_pill_for_its_restore_and_one_for_what_pruning_changed() -> None:
    assert tones(RESULT) == {"restored as saved": "good", "pruning: diverged": "soft"}
    strict = RESULT | {"required": "equivalent"}
    missed = "pruning: diverged, not met: equivalent was required"
    assert tones(strict) == {"restored as saved": "good", missed: "bad"}
    wrong = RESULT | {"itself": RESULT["itself"] | {"verdict": "diverged"}}
    assert tones(wrong) == {"not restored as saved": "bad", "pruning: diverged": "soft"}
    assert tones(RESULT | {"verdict": "equivalent"})["pruning: equivalent"] == "alike"
    assert not badge.pills(RESULT | {"pruned": False})
    assert not badge.pills(RESULT | {"verdict": "failed"}) and not badge.pills(RESULT | {"itself": {}})  # fmt: skip
    page = pages.page("t", [], "diverged", "r", pills=badge.pills(RESULT))
    shown = re.findall(r'<span class="verdict (\w+)">', page)
    assert shown == ["good", "soft"], "and no pill of one verdict"


@pytest.mark.parametrize("free", [True, False])
def test_the_chart_and_the_bounds_of_a_pruned_run_are_its_own(tmp_path: Path, free: bool) -> None:
    curve = {"max_abs_diff": [0.1, 0.5], "kl": [1e-5, 1e-3]}
    figures = {"max_abs_diff": 0.5, "first_divergence": 1}
    result = RESULT | {
        "metrics": figures, "noise_floor": figures, "oracle": {"restored": 13.0, "plain": 1e-5, "ratio": 1.3e6},
        "curves": {"restored": curve, "noise: a": curve}, "soundness": {"paths": []},
        "required": "diverged" if free else "equivalent",
    }  # fmt: skip
    (chart,) = run._comparison(tmp_path / "r.html", result)
    assert chart["title"] == "Pruned against the full cache"
    assert "pruned" in chart["legend"] and "restored" not in chart["legend"]
    assert "pruned" in (tmp_path / "divergence.svg").read_text()
    assert "ahead" not in chart["text"], "a bound of twice the largest difference says nothing"
    float64, sound = yardstick.sections(result)
    assert sound["title"] == "Is the yardstick sound?"
    rows = {row[0]: row[2] for row in float64["rows"]}
    assert rows["largest error of the pruned run"] == (None if free else 2e-5)
    ratio = "times the plain path's error against float64"
    assert rows[ratio if free else f"{ratio} (2 is allowed)"] == (None if free else 2.0)
    assert ("compare.require_pruned=diverged" in float64["text"]) is free


def test_a_complete_search_links_what_its_sweeper_wrote_and_what_its_cells_answered(
    tmp_path: Path,
) -> None:
    told = "hydra: {sweeper: {_target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper}}"
    (tmp_path / "multirun.yaml").write_text(told)
    assert sweep._files(sweep_of(tmp_path, [ROW]), 0) == ["sweep.csv", "sweep.json", "optimization_results.yaml"]  # fmt: skip
    assert sweep._files(sweep_of(tmp_path, [ROW], 2), 1) == ["sweep.csv", "sweep.json"]
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "evaluate.json").write_text("[]")
    (tmp_path / "multirun.yaml").unlink()
    assert sweep._files(sweep_of(tmp_path, [ROW]), 0) == ["sweep.csv", "answers.csv", "sweep.json"]


def test_only_tasks_that_can_be_audited_are_offered_to_be() -> None:
    rows = [ROW, ROW | MORE]
    assert sweep._audit(rows) == ["python -m harness task=audit run=runs/the-sweep"]
    assert not sweep._audit([ROW, ROW | MORE | {"task": "bench"}])


def test_few_numbers_under_an_axis_are_those_that_were_measured() -> None:
    assert scatter.ticks([24, 48, 24]) == [24, 48]
    assert not scatter.ticks([24]) and not scatter.ticks([1, 2, 100]) and not scatter.ticks([])
    assert not scatter.ticks(list(range(9)))
    rows = [ROW, ROW | MORE]
    drawn = scatter.scatter(rows, "kept_tokens", "kl_mean", sweep.tone, None, "t", "x", "y")
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", drawn)
    assert {"24", "48"} <= set(shown) and not {"30", "40"} & set(shown)


def test_a_quantized_run_came_back_as_saved_whatever_its_codes_lost() -> None:
    lost = RESULT | {"pruned": False, "quantization": {"quantizer": "int4"}, "verdict": "drifted"}
    assert tones(lost) == {"restored as saved": "good", "quantizing: drifted": "soft"}
    strict = lost | {"required": "equivalent"}
    assert tones(strict)["quantizing: drifted, not met: equivalent was required"] == "bad"
    block = lost["itself"] | {"cache": "dynamic", "max_abs_diff": 2.0, "noise": 1.0, "reason": "r"}
    (section,) = run.restored_as_saved(lost | {"itself": block})
    assert section["columns"][1:3] == ["measured", "allowed"]
    assert section["rows"][0][-1]["text"] == "beyond" and section["rows"][0][-1]["kind"] == "bad"
    assert not run.restored_as_saved(RESULT | {"itself": {}})


def test_of_a_quantized_run_texts_and_bytes_are_called_by_that() -> None:
    text = {
        "continuation": "k is 5 man",
        "restored": "k is 5 frog",
        "token_ids": [1],
        "restored_ids": [2],
    }
    shown = run._text(text, "quantized")["marked"]
    assert (
        "continuation, the full cache, never interrupted: " in shown
        and "\nquantized, what it" in shown
    )
    size = {"tokens": 97, "kept_tokens": 97, "kv_bytes": 51216}
    coded = {"size": size, "quantization": {"plain_bytes": 198656, "kv_bytes": 51216}}
    (share,) = kept_tokens.beside_the_full(coded).values()
    assert share == "51,216 of 198,656 (25.8%) of the full cache"
    assert kept_tokens.beside_the_full({"size": size | {"kv_bytes": 198656}}) == {}
