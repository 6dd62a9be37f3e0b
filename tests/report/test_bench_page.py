"""Pages of times: what was measured is said first, drawn in the unit of its table, and short times are called so."""

import re

import pytest

from harness.report import bench, chat
from harness.report.picture import plots

ROW = {
    "ratio_to_dynamic": 1.0, "times_limit": 2.0, "bytes_copied_per_token": 0, "open_s": 0.0005, "limit_s": 0.001,
    "reason": None, "dtype": "float32",
}  # fmt: skip


def row(cache: str, context: int, seconds: float, branches: int = 1) -> dict:
    times = {"per_token_s": seconds, bench.LOW: seconds, bench.HIGH: seconds}
    return ROW | {"cache": cache, "context": context, "branches": branches} | times


ROWS = [row("dynamic", 256, 0.02), row("manual", 256, 0.01), row("dynamic", 512, 0.03, 16),
        row("manual", 512, 0.04, 16)]  # fmt: skip


def test_a_page_of_decode_steps_draws_single_ones_and_several_at_once() -> None:
    alone, together, figures = bench.decode(ROWS)
    assert (
        "(both axes logarithmic)" in alone["panels"][0]
        and "manual is the fastest" in alone["headline"]
    )
    assert len(together["panels"]) == 1 and "16 at once, 512 past tokens" in together["panels"][0]
    assert "ms per token" in figures["columns"] and 20.0 in figures["rows"][0], "as it is drawn"
    assert bench.fastest([]) == bench.speedup([]) == ""
    assert bench.console(ROWS[:1])[0]["ms per token"] == ROWS[0]["per_token_s"] * 1e3


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


def test_a_restore_page_has_no_empty_column_and_says_why_a_row_is_empty() -> None:
    blank = dict.fromkeys(bench.RESTORED)
    done = blank | {c: 1 for c in bench.RESTORED if c != "peak_device_bytes"}
    rows = [done | {"context": 512, "reason": None}, blank | {"context": 2048, "reason": "no room"}]
    _, figures, why = bench.restore(rows)
    assert len(figures["columns"]) == len(bench.RESTORE) - 1 == len(figures["rows"][0])
    assert figures["rows"][0][figures["columns"].index("prefill, ms")] == 1000, "in its unit"
    assert why["rows"][0][1] == "no room" and len(bench.restore(rows[:1])) == 2
    assert "1 of the time of a prefill of 512 tokens" in bench.speedup(rows)


def format_row(name: str, save: float, load: float, saves: int, loads: int, ratio: float) -> dict:
    return {"format": name, "dtype": "bfloat16", "save_s": save, "load_s": load, "save_first": saves, "load_first": loads,
            "ratio": ratio, "kv_bytes": 2**27, "peak_extra_bytes": round(ratio * 2**20)}  # fmt: skip


def test_a_format_is_the_fastest_that_was_so_in_most_rounds() -> None:
    rows = [format_row("torch", 0.10, 0.02, 5, 3, 1.0), format_row("blosc2", 0.2, 0.03, 0, 2, 0.7),
            format_row("memory", 0.01, 0.01, 0, 0, 0.0)]  # fmt: skip
    (line,) = bench.format_winners(rows, 5)
    assert "torch saves fastest (" in line and "torch loads fastest in 3 of 5 rounds" in line
    assert "blosc2 is smallest (0.70" in line
    rows[0] |= {"save_first": 2}  # the twin: nobody was first in most of them
    rows[1] |= {"save_first": 2}
    (line,) = bench.format_winners(rows, 5)
    assert "none saves fastest in most of 5 rounds" in line
    assert len(bench.format_winners([*rows, rows[0] | {"dtype": "float32"}], 5)) == 2


def test_a_panel_of_bars_makes_room_for_its_longest_name() -> None:
    def left(name: str) -> float:
        drawn = plots.bars(["torch", name], [1.0, 2.0], "t", "ms")
        return min(float(x) for x in re.findall(r'<path d="M ([\d.]+) ', drawn)[1:])

    assert left("blosc2 byte zstd 1") > left("view") + 40
