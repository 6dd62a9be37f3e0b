"""Pages of times: what was measured is said first, drawn in the unit of its table, and short times are called so."""

import re

import pytest

from harness.report import bench, chat, format_bench, html, restore_bench
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
    assert "of tiny, 870k parameters: " in bench.headline(ROWS, "tiny, 870k parameters")
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


def test_a_bench_says_which_cache_is_fastest_at_the_longest_past() -> None:
    def row(cache: str, context: int, seconds: float | None, ratio: float | None) -> dict:
        return {"cache": cache, "dtype": "float32", "context": context, "branches": 1,
                "per_token_s": seconds, "ratio_to_dynamic": ratio, bench.LOW: seconds, bench.HIGH: seconds}  # fmt: skip

    rows = [row("dynamic", 256, 0.001, 1.0), row("dynamic", 1024, 0.02, 1.0), row("view", 1024, 0.005, 4.0)]  # fmt: skip
    said = (
        "after 1,024 tokens in float32, view is the fastest: 5 ms a token, 4.0 times as fast as dynamic, "
        "another cache in 1 of all 2 settings; "
    )
    assert bench.fastest([*rows, row("manual", 1024, None, None)]) == said
    always = [*rows, row("view", 256, 0.0005, 2.0)]
    assert bench.fastest(always) == said.replace("another cache in 1 of", "and so it is in")
    assert (
        bench.fastest(rows[1:2])
        == "after 1,024 tokens in float32, dynamic is the fastest: 20 ms a token; "
    )
    assert bench.fastest([]) == ""


def test_a_restore_is_held_against_a_prefill_of_the_longest_past() -> None:
    row = {"context": 2048, "speedup": 4.0}
    rows = [{"context": 512, "speedup": 9.0}, row, {"context": 9999, "speedup": None}]
    said = "a restore is {} to the first token than a prefill of 2,048 tokens; "
    assert restore_bench.conclusion(rows) == said.format("4.0 times faster")
    assert restore_bench.conclusion([row | {"speedup": 0.5}]) == said.format("2.0 times slower")
    assert restore_bench.conclusion(rows[2:]) == ""


def test_a_restore_page_has_no_empty_column_and_says_why_a_row_is_empty() -> None:
    blank = dict.fromkeys(restore_bench.FIGURES)
    done = blank | {c: 1 for c in restore_bench.FIGURES if c != "peak_device_bytes"}
    rows = [done | {"context": 512, "reason": None}, blank | {"context": 2048, "reason": "no room"}]
    _, figures, why = restore_bench.sections(rows)
    assert len(figures["columns"]) == len(restore_bench.COLUMNS) - 1 == len(figures["rows"][0])
    assert figures["rows"][0][figures["columns"].index("prefill, ms")] == 1000, (
        "in the unit of its heading"
    )
    assert why["rows"] == [[2048, "no room"]] and len(restore_bench.sections(rows[:1])) == 2


def format_row(name: str, save: float, load: float, saves: int, loads: int, ratio: float) -> dict:
    return {"format": name, "dtype": "bfloat16", "save_s": save, "load_s": load, "save_first": saves, "load_first": loads,
            "ratio": ratio, "kv_bytes": 2**27, "peak_extra_bytes": round(ratio * 2**20)}  # fmt: skip


def test_the_formats_are_named_that_save_and_load_fastest_and_take_least_room() -> None:
    rows = [format_row("torch", 0.10, 0.02, 5, 3, 1.0), format_row("blosc2", 0.2, 0.03, 0, 2, 0.7),
            format_row("memory", 0.01, 0.01, 0, 0, 0.0)]  # fmt: skip
    (said,) = format_bench.conclusions(rows, 5)
    assert said.replace("\u00a0", " ") == (
        "128 MiB of K/V in bfloat16: torch saves fastest (100 ms); torch loads fastest in 3 of 5 rounds (20 ms), blosc2 "
        "in 2 (30 ms); blosc2 is smallest (0.70 of the K/V's bytes); extra memory at its peak from 717 KiB (blosc2) to "
        "1 MiB (torch)."
    )
    rows[0] |= {"save_first": 2}
    rows[1] |= {"save_first": 2}
    rows.append(format_row("pickle", 0.1, 0.1, 1, 0, 1.0))
    (said,) = format_bench.conclusions(rows, 5)
    assert "none saves fastest in most of 5 rounds: torch in 2 (100" in said
    assert len(format_bench.conclusions([*rows, rows[0] | {"dtype": "float32"}], 5)) == 2


def test_a_panel_of_bars_makes_room_for_its_longest_name() -> None:
    def left(name: str) -> float:
        drawn = plots.bars(["torch", name], [1.0, 2.0], "t", "ms")
        return min(float(x) for x in re.findall(r'<path d="M ([\d.]+) ', drawn)[1:])

    assert left("blosc2 byte zstd 1") > left("view") + 40
