"""A bench names no winner that its spread does not tell, and its picture can be read at one context."""

import re

import pytest

from harness.report import bench

ROW = {
    "dtype": "float32", "context": 512, "branches": 1, "ratio_to_dynamic": 1.0, "limit_s": 0.009, "reason": None,
    "times_limit": 2.0, "bytes_copied_per_token": 0, "open_s": 0.001,
}  # fmt: skip


def rows(low: float | None, high: float | None) -> list[dict]:
    times = (("dynamic", 0.028, 0.026, 0.031), ("manual", 0.019, low, high))
    return [
        ROW | {"cache": c, "per_token_s": s, bench.LOW: a, bench.HIGH: b} for c, s, a, b in times
    ]


@pytest.mark.parametrize("low, high", [(0.018, 0.027), (None, None)])
def test_times_whose_middle_halves_overlap_or_are_not_known_name_no_winner(low, high) -> None:
    assert "not told apart" in bench.fastest(rows(low, high))
    assert "manual is the fastest" in bench.fastest(rows(0.018, 0.02))  # the twin


def test_caches_that_are_not_told_apart_are_named_with_the_reason() -> None:
    few = [row | {"runs": 3} for row in rows(0.018, 0.02)]
    names, why = bench.tied(few)
    assert names == ["dynamic"] and why.startswith("only 3 steps")
    slow = ROW | {"cache": "view", "per_token_s": 0.05, bench.LOW: 0.04, bench.HIGH: 0.06}
    names, why = bench.tied([row | {"runs": 11} for row in [*rows(0.018, 0.027), slow]])
    assert names == ["dynamic"] and "overlap" in why  # view is slower than both
    assert bench.tied(rows(0.018, 0.02)) == ([], "")


def test_the_middle_half_stands_beside_its_median() -> None:
    *_, figures = bench.decode(rows(0.018, 0.02))
    place = figures["columns"].index("middle half, ms")
    assert [row[place] for row in figures["rows"]] == ["26-31", "18-20"]


def test_at_one_context_the_limit_is_a_line_and_the_axis_has_two_numbers() -> None:
    panel = bench.decode_panels(rows(0.018, 0.02))[0]
    dotted = re.findall(r'<path d="([^"]*)"[^>]*stroke-dasharray', panel)
    assert any(" L " in path.replace("\n", " ") or "L" in path for path in dotted)
    ticks = re.findall(r">([\d.]+)</text>", panel.split('id="matplotlib.axis_2"')[1])
    assert len(ticks) >= 2
