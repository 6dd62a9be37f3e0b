"""How much K/V the formats are measured on where nobody says, and that no format pays for what is done once."""

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.pipeline import clock
from harness.task.bench import claim, formats, rounds
from harness.task.bench.formats import NEW_TOKENS, TOKENS, _usual


@pytest.mark.parametrize("positions", [256, 2048, 4096])
def test_the_usual_size_fits_into_the_model(positions: int) -> None:
    tokens = _usual(SimpleNamespace(max_positions=positions))
    assert positions // 4 <= 2 * tokens + NEW_TOKENS <= positions


@pytest.mark.parametrize("positions", [None, 32768])
def test_where_there_is_room_it_is_always_the_same(positions: int | None) -> None:
    assert _usual(SimpleNamespace(max_positions=positions)) == TOKENS


@pytest.mark.parametrize(
    "model, weights",
    [
        ("tiny", "the model&#39;s own weights"),
        pytest.param("tiny_gpt2", "seeded random weights", marks=pytest.mark.slow),
    ],
)
def test_every_format_is_measured_and_gives_back_every_byte(
    harness, monkeypatch, model: str, weights: str
) -> None:
    """And what is done once, here half a second and 64 MiB, is no format's, no restore's and no prefill's."""
    kept: list[bytes] = []

    def once(work: Callable[..., Any]) -> Callable[..., Any]:
        left = iter([0.5])

        def done(*arguments: Any, **settings: Any) -> Any:
            if seconds := next(left, 0.0):
                kept.append(b"x" * 2**26)
                time.sleep(seconds)
            return work(*arguments, **settings)

        return done

    monkeypatch.setattr(rounds.store, "save", once(rounds.store.save))
    monkeypatch.setattr(rounds.store, "load", once(rounds.store.load))
    monkeypatch.setattr(formats, "decoder", once(formats.decoder))
    monkeypatch.setattr(formats, "recompute_seconds", lambda *_: clock.seconds(read))
    monkeypatch.setattr(claim.pickle, "dump", once(claim.pickle.dump))
    read = once(lambda: None)
    small = "task.tokens=32", "task.dtypes=[bfloat16]", "task.repeats=1"
    done = harness("task=format_bench", f"model={model}", *small)
    assert done.code == 0, done.out
    assert len(kept) == 5, "each was slow once"
    rows = json.loads((done.folders[-1] / "bench.json").read_text())
    assert {"safetensors", "gzip", "blosc2"} <= {row["format"] for row in rows}
    assert all(row["save_s"] > 0 and row["stored_bytes"] > row["kv_bytes"] * 0.1 for row in rows)
    result = json.loads((done.folders[-1] / "result.json").read_text())
    taken = [result["figures"], result["claims"][0]["figures"], *rows]
    slow = {
        k: v for row in taken for k, v in row.items() if k.endswith(("_s", "_seconds")) and v > 0.4
    }
    assert not slow, slow
    assert all(row["peak_extra_bytes"] < 2**25 for row in rows)
    page = (done.folders[-1] / "report.html").read_text()
    assert all(page.count(f'href="{name}.json"') == 1 for name in ("bench", "claims")), (
        "linked once"
    )
    assert f"by {weights}" in page and result["conclusion"].startswith(
        result["reason"]["args"]["message"].partition("\n")[0][:40]
    )


def test_what_is_slow_is_timed_once_and_met_by_every_round(monkeypatch) -> None:
    times = {"torch": {"save": [1.0, 3.0], "load": [1.0, 1.0]}, "gzip": {"save": [2.0], "load": [0.5]},
             "memory": {"save": [0.1, 0.1], "load": [0.1, 0.1]}}  # fmt: skip
    rows = [{"format": name} for name in times]
    rounds._placed(rows, times, 2)
    assert [(row["save_first"], row["load_first"]) for row in rows] == [(1, 0), (1, 2), (0, 0)]


def test_no_format_comes_behind_the_same_one_in_every_round() -> None:
    names = list(rounds.VARIANTS)
    rows = [rounds.order(names, number) for number in range(5)]
    assert all(sorted(row) == sorted(names) for row in rows)
    behind = {name: {row[row.index(name) - 1] for row in rows} for name in names}
    assert min(map(len, behind.values())) > 1 and len({row[0] for row in rows}) > 1
