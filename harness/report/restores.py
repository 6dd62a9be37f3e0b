"""What `task=restore_bench` says: one table, and restore beside prefill by context."""

from typing import Any

from harness.report import plots
from harness.report.html import section

TIMED = ("save_s", "raw_write_s", "load_s", "raw_read_s", "to_device_s", "first_token_s")
FIGURES = (*TIMED, "prefill_s", "restored_s", "speedup", "save_of_raw", "kv_bytes", "stored_bytes",
           "peak_device_bytes")  # fmt: skip
COLUMNS = ["context", "kv_bytes", "prefill_s", "load_s", "to_device_s", "first_token_s", "speedup",
           "save_s", "save_of_raw", "peak_device_bytes"]  # fmt: skip


def sections(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks of the page for `bench.json` rows of restores."""
    measured = [row for row in rows if row["reason"] is None]
    out = []
    if measured:
        out.append(
            section(
                "Restored or prefilled",
                text="Time to the first token. Restored: every byte verified, moved to the device, "
                "one decode step. The files were just written, so they are read from memory, as "
                "are the raw ones.",
                svg=_figure(measured),
            )
        )
    table = [[row[c] for c in COLUMNS] for row in rows]
    return [*out, section("All figures", columns=COLUMNS, rows=table)]


def _figure(rows: list[dict[str, Any]]) -> str:
    made, (left, right) = plots.figure(9, 3.2, 2)
    contexts = [row["context"] for row in rows]
    for number, (name, label) in enumerate((("prefill_s", "prefill"), ("restored_s", "restored"))):
        colour = plots.COLOURS[number]
        left.plot(contexts, [row[name] for row in rows], "o-", color=colour, label=label)
    right.plot(contexts, [row["speedup"] for row in rows], "o-", color=plots.COLOURS[1])
    for axis, title, unit in ((left, "To the first token", "s"), (right, "Speed-up", "times")):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        plots.label(axis, title, "past tokens", unit)
    plots.legend(left)
    return plots.svg(made)
