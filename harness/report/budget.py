"""The pictures of `task=evaluate`: what is answered, and how likely what was expected is, against what is held."""

from math import nan
from typing import Any

from harness.report import axes, plots
from harness.snapshot.cells import is_full

FEW = 10  # KiB; ticks of more are whole numbers
ASIDE = " Marks that would hide one another stand a little side by side; a short grey stroke on the axis is at their true size."
BEFORE = 0.05  # of an axis of sizes, left of nothing: room for half a row of marks
STROKE = 7.0  # points: the mark of a true size on the axis
CLOSE, ROW = 4.5, 20.0  # points between marks side by side, and of a row of them at most

Row = dict[str, Any]


def pictures(rows: list[Row]) -> list[tuple[str, bool]]:
    asked = list(dict.fromkeys(r["asked"] for r in rows))
    panels = [(measure, a) for measure in ("contains", "nll") for a in asked]
    return [_panel(rows, measure, when) for measure, when in panels]


def groups_of(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r["prune"], r["quantize"]) for r in rows if not is_full(r)))


def _panel(rows: list[Row], measure: str, when: str) -> tuple[str, bool]:
    """The picture, and whether any mark in it stands beside its true size."""
    made, (axis,) = plots.figure(plots.WIDTH, 3.6)
    right = measure == "contains"
    some = [r for r in rows if r["measure"] == measure and r["asked"] == when]
    groups = groups_of(rows)
    drawn = [r for r in some if not is_full(r)]
    held, own = max(map(kib, some)), [groups.index((r["prune"], r["quantize"])) for r in drawn]
    axis.set_xlim(-BEFORE * held, 1.05 * held)
    axis.locator_params(axis="x", nbins=5)  # more run together
    axis.xaxis.set_major_formatter("{x:,.0f}" if held > FEW else "{x:g}")
    places = list(map(kib, drawn))
    aside = axes.abreast(axis, places, [0.0] * len(drawn), own, CLOSE, ROW)
    at = {id(r): place + by for r, place, by in zip(drawn, places, aside, strict=True)}
    for number in range(len(groups)):
        line = sorted(
            ((at[id(r)], r) for o, r in zip(own, drawn) if o == number), key=lambda one: one[0]
        )
        values = [r["value"] for _, r in line]
        ends = [(r["low"], r["high"]) if r["low"] is not None else (nan, nan) for _, r in line]
        bars = [[v - low for v, (low, _) in zip(values, ends)], [high - v for v, (_, high) in zip(values, ends)]]  # fmt: skip
        axis.errorbar(
            [x for x, _ in line], values, bars, fmt=plots.mark(number), markersize=4,
            elinewidth=1, color=plots.COLOURS[number % len(plots.COLOURS)],
        )  # fmt: skip
    for row in some:
        if is_full(row):
            axis.axhline(row["value"], color=plots.INK, linestyle="--", linewidth=1)
    front = pareto(some, larger=right)
    axis.plot([at.get(id(r), kib(r)) for r in front], [r["value"] for r in front], color=plots.INK, linewidth=0.7, alpha=0.6)  # fmt: skip
    if right:
        axis.set_ylim(-0.03, 1.05)
    for row in some:
        if is_full(row):
            _called(axis, row["value"])
    true = sorted({place for place, by in zip(places, aside, strict=True) if by})
    axis.plot(true, [0.0] * len(true), "|", markersize=STROKE, color=plots.INK, alpha=0.5, clip_on=False,
              transform=axis.get_xaxis_transform())  # fmt: skip
    title = "Right answers" if right else "Expected answer"
    plots.label(
        axis, f"{title}, asked {when}", "KiB of K/V held", "share" if right else "nats per token"
    )
    return plots.svg(made), any(aside)


def _called(axis: Any, value: float) -> None:
    """What the dashed line is, at its end, where no smaller cell stands; below a line in the upper half."""
    low, high = axis.get_ylim()
    upper = value > (low + high) / 2
    axis.annotate(
        "full cache", (1, value), (0, -3 if upper else 3), xycoords=axis.get_yaxis_transform(),
        textcoords="offset points", fontsize=8, color=plots.INK, ha="right", va="top" if upper else "bottom",
    )  # fmt: skip


def kib(row: Row) -> float:
    return float(row["kv_bytes"]) / 1024


def pareto(rows: list[Row], larger: bool) -> list[Row]:
    """The rows that no smaller one matches, from the smallest; larger: whether a larger value is better."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda r: (r["kv_bytes"], -r["value"] if larger else r["value"])):
        better = row["value"] > front[-1]["value"] if larger and front else None
        better = row["value"] < front[-1]["value"] if not larger and front else better
        if not front or better:
            front.append(row)
    return front
