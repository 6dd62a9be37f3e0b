"""What `task=restore_bench` says: one table, and restore beside prefill by context."""

from typing import Any

from harness.report.html import grouped, section
from harness.report.picture import plots

WAYS = ("prefill", "restored")
TIMED = ("save_s", "raw_write_s", "load_s", "raw_read_s", "to_device_s", "first_token_s")
FIGURES = (*TIMED, "prefill_s", "restored_s", "speedup", "save_of_raw", "kv_bytes", "stored_bytes",
           "peak_device_bytes")  # fmt: skip
FIRST = ("same_first_token", "first_apart", "first_gap")  # against the live cache's logits
COLUMNS = ["context", "kv_bytes", "prefill_s", "load_s", "to_device_s", "first_token_s", "speedup",
           "save_s", "save_of_raw", "peak_device_bytes"]  # fmt: skip


HEADS = {
    "context": "past tokens", "kv_bytes": "K/V bytes", "prefill_s": "prefill, ms", "load_s": "load, ms",
    "to_device_s": "to the device, ms", "first_token_s": "first token, ms",
    "speedup": "restored against prefilled, times", "save_s": "save, ms",
    "save_of_raw": "save, of a raw write", "peak_device_bytes": "peak on the device, bytes",
}  # fmt: skip


def sections(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks of the page for `bench.json` rows of restores."""
    measured = [row for row in rows if row["reason"] is None]
    out = []
    if measured:
        out.append(
            section(
                "Restored or prefilled",
                text="Time to the first token. Restored: every byte verified, moved to the device, "
                "one decode step. Medians, after a first time of each that is not counted: what is "
                "prepared once (kernels) is in none of them. The files were just written, so they "
                "are read from memory, as are the raw ones.",
                legend=plots.colours(WAYS),
                panels=_panels(measured),
            )
        )
    known = [c for c in COLUMNS if any(row[c] is not None for row in rows)]
    table = [[_shown(c, row[c]) for c in known] for row in rows]
    told = "Restored against prefilled: the prefill's time over that of load, move and first token together. Save, of a "
    told += "raw write: the time of writing the same bytes into one file over ours; 1 is as fast."
    heads = [HEADS[c] for c in known]
    out.append(section("All figures", text=told, columns=heads, rows=table))
    lacking = [[row["context"], row["reason"]] for row in rows if row["reason"]]
    why = [section("Not measured", columns=["past tokens", "why"], rows=lacking)] * bool(lacking)
    return [*out, *why]


def _shown(column: str, value: Any) -> Any:
    timed = column.endswith("_s") and value is not None
    return value * 1e3 if timed else grouped(value)


def conclusion(rows: list[dict[str, Any]]) -> str:
    """How a restore compares with a prefill at the longest past that was measured; empty for none."""
    measured = [row for row in rows if row["speedup"]]
    if not measured:
        return ""
    row = max(measured, key=lambda one: one["context"])
    way = "faster" if row["speedup"] >= 1 else "slower"
    times = max(row["speedup"], 1 / row["speedup"])
    if round(times, 1) == 1:
        return (
            f"a restore is as fast to the first token as a prefill of {row['context']:,} tokens; "
        )
    return f"a restore is {times:.1f} times {way} to the first token than a prefill of {row['context']:,} tokens; "


def first_tokens(rows: list[dict[str, Any]]) -> str:
    """Whether the first token after each restore is the live cache's, and by how much one that is not
    was missed: two that lie nearer together than the runs do are a matter of rounding."""
    measured = [row for row in rows if row["same_first_token"] is not None]
    other = [row for row in measured if not row["same_first_token"]]
    if not measured:
        return "no first token was measured"
    if not other:
        return "the first token is the same in each"
    told = [
        f"at {row['context']:,} it is another: the two likeliest are {row['first_gap']:.3g} apart, the two runs {row['first_apart']:.3g}"
        for row in other
    ]
    return (
        f"the first token is the same in {len(measured) - len(other)} of them ({'; '.join(told)})"
    )


def word(rows: list[dict[str, Any]]) -> str:
    """The same in a few words."""
    return conclusion(rows).removeprefix("a restore is ").partition(" to the first")[0]


def _panels(rows: list[dict[str, Any]]) -> list[str]:
    """Seconds to the first token both ways, and how many times faster a restore is."""
    times, speed = (plots.figure(plots.WIDTH, plots.HEIGHT) for _ in range(2))
    contexts = [row["context"] for row in rows]
    for number, way in enumerate(WAYS):
        style = {"color": plots.COLOURS[number], "marker": plots.mark(number)}
        times[1][0].plot(contexts, [row[f"{way}_s"] * 1e3 for row in rows], **style)
    speed[1][0].plot(contexts, [row["speedup"] for row in rows], marker="o", color=plots.INK)
    plots.against_context(times[1][0], "To the first token", "ms")
    plots.against_context(speed[1][0], "Restored against prefilled", "times")
    return [plots.svg(times[0]), plots.svg(speed[0])]
