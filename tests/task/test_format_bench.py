"""How much K/V the formats are measured on where nobody says."""

import json
from types import SimpleNamespace

import pytest

from harness.task.format_bench import NEW_TOKENS, TOKENS, _usual


@pytest.mark.parametrize("positions", [256, 2048, 4096])
def test_the_usual_size_fits_into_the_model(positions: int) -> None:
    tokens = _usual(SimpleNamespace(max_positions=positions))
    assert positions // 4 <= 2 * tokens + NEW_TOKENS <= positions


@pytest.mark.parametrize("positions", [None, 32768])
def test_where_there_is_room_it_is_always_the_same(positions: int | None) -> None:
    assert _usual(SimpleNamespace(max_positions=positions)) == TOKENS


def test_every_format_is_measured_and_gives_back_every_byte(harness) -> None:
    small = "task.tokens=32", "task.dtypes=[bfloat16]", "task.repeats=1"
    done = harness("task=format_bench", *small)
    assert done.code == 0, done.out
    rows = json.loads((done.folders[-1] / "bench.json").read_text())
    assert {"safetensors", "gzip", "blosc2"} <= {row["format"] for row in rows}
    assert all(row["save_s"] > 0 and row["stored_bytes"] > row["kv_bytes"] * 0.1 for row in rows)
