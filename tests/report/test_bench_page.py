"""Pages of times: what was measured is said first, drawn in the unit of its table, and short times are called so."""

import re

import pytest

from harness.report import bench, chat, html, plots

ROW = {
    "ratio_to_dynamic": 1.0, "times_limit": 2.0, "bytes_copied_per_token": 0, "open_s": 0.0005, "limit_s": 0.001,
    "reason": None, "dtype": "float32",
}  # fmt: skip


def row(cache: str, context: int, seconds: float, branches: int = 1) -> dict:
    return ROW | {"cache": cache, "context": context, "branches": branches, "per_token_s": seconds}


ROWS = [row("dynamic", 256, 0.02), row("manual", 256, 0.01), row("dynamic", 512, 0.03, 16),
        row("manual", 512, 0.04, 16)]  # fmt: skip


def test_a_bench_says_what_it_measured_and_draws_several_continuations_at_once_as_well() -> None:
    blocks = bench.sections(ROWS)
    first = html.headed(blocks, "more").splitlines()[0]
    assert first == (
        "Time to decode one token after 256 to 512 tokens of past, with 2 caches, in float32: "
        "manual is the fastest in 1 of 2 settings."
    )
    alone, together, figures = blocks
    assert "(both axes logarithmic)" in alone["panels"][0]
    assert len(together["panels"]) == 1 and "16 at once, 512 past tokens" in together["panels"][0]
    assert "ms per token" in figures["columns"] and 20.0 in figures["rows"][0], "as it is drawn"
    assert bench._together(ROWS[:2]) == [] and bench.headline([]) == ""


def test_an_axis_that_counts_has_whole_numbers_alone() -> None:
    curve = {"kl": [1e-6, 2e-6], "max_abs_diff": [1e-3, 2e-3]}
    for panel in plots.divergence({"restored": curve}):
        drawn = panel.split('id="matplotlib.axis_2"')[0]
        assert re.findall(r">([\d.]+)</text>", drawn) == ["1", "2"]


@pytest.mark.parametrize("seconds, short", [(0.05, True), (0.5, False)])
def test_a_chat_says_that_its_times_are_too_short_to_compare(seconds: float, short: bool) -> None:
    turn = {"turn": 1, "ask": "a", "answer": "b", "cached_s": seconds, "naive_s": seconds}
    (first, *_) = chat.sections([turn], {})
    assert ("a ratio of two of them says little" in first["text"]) is short
