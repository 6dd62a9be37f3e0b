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
    for said in (bench.headline(rows(low, high)), bench.fastest(rows(low, high))):
        assert "told apart" in said and "fastest" not in said
    for said in (bench.headline(rows(0.018, 0.02)), bench.fastest(rows(0.018, 0.02))):
        assert "manual is the fastest" in said and "told apart" not in said


def test_why_nothing_is_told_apart_is_the_true_reason() -> None:
    few = [row | {"runs": 3} for row in rows(0.018, 0.02)]
    for said in (bench.headline(few), bench.fastest(few)):
        assert "only 3 steps of each timed, where 8 begin to tell" in said
        assert "overlap" not in said and "fastest" not in said
    slow = ROW | {"cache": "view", "per_token_s": 0.05, bench.LOW: 0.04, bench.HIGH: 0.06}
    many = [row | {"runs": 11} for row in [*rows(0.018, 0.027), slow]]
    for said in (bench.headline(many), bench.fastest(many)):
        assert "the middle halves of their times overlap" in said and "only" not in said
    said = "manual and dynamic are not told apart (the middle halves of their times overlap): manual has the least median, 19 ms"
    assert said in bench.fastest(many), "view is slower than both and not among them"
    both = [*many, *(row | {"context": 64} for row in few)]
    assert "in 1 of 2 settings (the middle" in bench.headline(both) and "in 1 of 2 settings (only" in bench.headline(both)  # fmt: skip


def test_the_middle_half_stands_beside_its_median() -> None:
    *_, figures = bench.sections(rows(0.018, 0.02))
    place = figures["columns"].index("middle half, ms")
    assert [row[place] for row in figures["rows"]] == ["26-31", "18-20"]


def test_at_one_context_the_limit_is_a_line_and_the_axis_has_two_numbers() -> None:
    panel = bench._panels(rows(0.018, 0.02))[0]
    dotted = re.findall(r'<path d="([^"]*)"[^>]*stroke-dasharray', panel)
    assert any(" L " in path.replace("\n", " ") or "L" in path for path in dotted)
    ticks = re.findall(r">([\d.]+)</text>", panel.split('id="matplotlib.axis_2"')[1])
    assert len(ticks) >= 2
