"""The picture of `task=referee`: a row per case, how far it went from the cold run beside what is allowed."""

import math
from typing import Any

from harness.report.badge import kind
from harness.report.picture import plots
from harness.report.run.yardstick import TWICE

# inches of a row, of what is above and below them, of a letter of a name
ROW, ABOVE, BELOW, LETTER = 0.25, 0.5, 0.55, 0.068
LEFT, RIGHT = 0.4, 2.5  # of the smallest and of the largest: room for a whole mark
TEXT = (
    "Each row is a case: its error over what is allowed (dashed), on a logarithmic scale. Left of the line it gives "
    "what a run without the cache gives. A ring is a control, a wrong state that has to lie right of it."
)

Row = dict[str, Any]


def panel(rows: list[Row]) -> str:
    """The picture; empty where nothing was measured."""
    some = [(row, far) for row in rows if (far := share(row)) is not None]
    known = [far for _, far in some if far > 0]
    if not known:
        return ""
    low, high = min(*known, 1.0), max(*known, 1.0)
    height = ABOVE + BELOW + ROW * len(some)
    made, (axis,) = plots.figure(plots.WIDTH, height)
    left = 0.15 + LETTER * max(len(row["case"]) for row, _ in some)
    made.subplots_adjust(left=left / plots.WIDTH, bottom=BELOW / height, top=1 - ABOVE / height)  # fmt: skip
    axis.set_xscale("log")
    for place, (row, far) in enumerate(some):
        ink = plots.VERDICTS[kind(row["verdict"])][0]
        axis.plot([max(far, low * LEFT)], [place], marker="o" if far else "<", markersize=6, color=ink,
                  linestyle="none", fillstyle="none" if row["control"] else "full", clip_on=False)  # fmt: skip
    axis.axvline(1.0, color=plots.INK, linestyle="--", linewidth=1)
    axis.set_xlim(low * LEFT, high * RIGHT)
    axis.set_yticks(range(len(some)), [row["case"] for row, _ in some], fontsize=8)
    axis.set_ylim(len(some) - 0.4, -0.6)
    axis.grid(False, axis="y")
    plots.plain(axis.xaxis)
    title = "Error over what is allowed"
    made.text(0.15 / plots.WIDTH, 1 - 0.3 / height, f"{title}, times", fontsize=10, color=plots.INK)  # fmt: skip
    axis.set_xlabel("times what is allowed", fontsize=9, color=plots.INK)
    axis.set_label(f"{title}, times, by case")
    return plots.svg(made)


def share(row: Row) -> float | None:
    """The largest of a case's errors over what is allowed: of the difference, and against float64 where that was asked."""
    pairs = (
        ("oracle_error", "plain_error"),
        ("max_abs_diff", "noise_floor"),
        ("hit_diff", "hit_floor"),
    )
    known = [
        (row[own], row[scale])
        for own, scale in pairs
        if row.get(own) is not None and row.get(scale)
    ]
    far = [own / (TWICE * scale) for own, scale in known]
    return max(far) if far and math.isfinite(max(far)) else None
