"""How much K/V the formats are measured on where nobody says."""

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
