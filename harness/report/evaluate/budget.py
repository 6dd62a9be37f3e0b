"""The pictures of `task=evaluate`: what is answered, and how likely what was expected is, against what is held."""

from html import escape
from itertools import pairwise, product
from math import isfinite, nan
from typing import Any

from harness.machine import human
from harness.report.evaluate import intervals
from harness.report.picture import axes, plots
from harness.snapshot.cells import is_full
from harness.snapshot.result import CELL

CROWD = (
    "Each mark is a policy or quantizer at a budget, the bar through it its 95% interval (Wilson for shares, "
    "bootstrap over the prompts otherwise). The dashed line is the full cache."
)
FRONT = " The thin line joins the Pareto front, beyond which nothing smaller is as good; no other marks are joined."
FEW = 10  # KiB; ticks of more are whole numbers
ASIDE = " Marks and bars that would hide one another stand a little side by side; a short grey stroke on the axis is at their true size."
SPARE = 0.05  # of an axis beyond its smallest and largest value
ROOM = 0.1  # of the upright one, where a name stands above or below a line
NAME, LETTERS, LINE = "full cache", 46.0, 11.0  # of the dashed line; points across it and in height
STROKE = 7.0  # points: the mark of a true size on the axis
# Points across a mark, between two side by side, and of a row of them.
SIZE, CLOSE, ROW = 5.0, 5.0, 16.0
RING, ROUND = "\u25ef", 2.4  # around the best cell; so many marks across
COLOURS = (*plots.COLOURS, "#5a4fcf", "#7a5230")  # as many as there are policies
FILLS = {
    "full": "\u25cf",
    "none": "\u25cb",
    "left": "\u25d0",
    "right": "\u25d1",
    "top": "\u25d3",
    "bottom": "\u25d2",
}

Row = dict[str, Any]
Segment = tuple[tuple[float, float], tuple[float, float]]


def pictures(rows: list[Row], winner: Row | None = None) -> list[tuple[str, bool]]:
    """Each, and whether any mark in it stands beside its true size; what is no number has no place in any. winner:
    the cell that a ring is around."""
    rows = [r for r in rows if isfinite(r["value"])]
    asked = list(dict.fromkeys(r["asked"] for r in rows))
    there = {(r["measure"], r["asked"]) for r in rows}
    panels = [(m, a) for m in ("contains", "nll") for a in asked if (m, a) in there]
    if intervals.fit(rows):
        return [(intervals.panel(rows, measure, when, winner), False) for measure, when in panels]
    return [_panel(rows, measure, when, winner) for measure, when in panels]


def legend(rows: list[Row], winner: Row | None = None) -> str:
    """Whose colour and shape is whose, how full the marks of each quantizer are, where there are several, and what a
    ring is."""
    ring = f"<span><b>{RING}</b> the smallest safe choice</span>" * bool(winner)
    if intervals.fit(rows):
        return ring
    policies, quantizers = _told(rows)
    said = "".join(
        f'<span><b style="color:{_colour(number)}">{plots.SHAPES[plots.mark(number)]}</b> '
        f"{escape('no pruning' if policy == 'none' else policy)}</span>"
        for number, policy in enumerate(policies)
    )
    if quantizers != ["none"]:
        signs = list(FILLS.values())
        said += "<span>codes:</span>" + "".join(
            f"<span><b>{signs[place % len(signs)]}</b> {escape(quantizer)}</span>"
            for place, quantizer in enumerate(quantizers)
        )
    return said + ring


def text(rows: list[Row], moved: bool) -> str:
    """How to read the pictures. moved: whether any mark in them stands beside its true size."""
    if intervals.fit(rows):
        return intervals.TEXT
    asked = dict.fromkeys(
        (r["measure"], r["asked"]) for r in rows if r["measure"] in ("contains", "nll")
    )
    groups = [([r for r in rows if (r["measure"], r["asked"]) == pair], pair[0]) for pair in asked]
    front = any(len(pareto(some, larger=measure == "contains")) > 1 for some, measure in groups)
    return CROWD + FRONT * front + ASIDE * moved


def _told(rows: list[Row]) -> tuple[list[str], list[str]]:
    """Policies and quantizers of the cells that are no full cache, in order of appearance; no codes first."""
    some = [r for r in rows if not is_full(r)]
    kept = sorted(dict.fromkeys(r["quantize"] for r in some), key=lambda name: name != "none")
    return list(dict.fromkeys(r["prune"] for r in some)), kept


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _panel(rows: list[Row], measure: str, when: str, winner: Row | None = None) -> tuple[str, bool]:
    """The picture, and whether any mark in it stands beside its true size."""
    made, (axis,) = plots.figure(plots.WIDTH, 3.6)
    right = measure == "contains"
    plots.label(
        axis,
        intervals.titled(rows, measure, when),
        "KiB of K/V held",
        "%" if right else intervals.UNIT,
    )
    some = [r for r in rows if r["measure"] == measure and r["asked"] == when]
    policies, quantizers = _told(rows)
    drawn = [r for r in some if not is_full(r)]
    _limits(axis, some, right)
    places, heights = list(map(kib, drawn)), [r["value"] for r in drawn]
    own = [quantizers.index(r["quantize"]) * len(policies) + policies.index(r["prune"]) for r in drawn]  # fmt: skip
    bars = [
        tuple(r["value"] if r[end] is None else r[end] for end in ("low", "high")) for r in drawn
    ]
    aside = axes.abreast(axis, places, heights, own, CLOSE, ROW, bars)
    for row, place, by, number in zip(drawn, places, aside, own, strict=True):
        kept, policy = divmod(number, len(policies))
        low, high = (row["low"], row["high"]) if row["low"] is not None else (nan, nan)
        axis.errorbar(
            [place + by], [row["value"]], [[row["value"] - low], [high - row["value"]]],
            fmt=plots.mark(policy), markersize=SIZE, elinewidth=1, color=_colour(policy),
            fillstyle=list(FILLS)[kept % len(FILLS)], markerfacecoloralt="none", alpha=0.8,
        )  # fmt: skip
        if winner and all(row[key] == winner[key] for key in CELL):
            axis.plot([place + by], [row["value"]], "o", markersize=ROUND * SIZE, fillstyle="none", color=plots.INK)  # fmt: skip
    for row in some:
        if is_full(row):
            axis.axhline(row["value"], color=plots.INK, linestyle="--", linewidth=1)
    front = pareto(some, larger=right)
    beside = {id(row): by for row, by in zip(drawn, aside, strict=True)}
    line = [(kib(r) + beside.get(id(r), 0.0), r["value"]) for r in front]
    axis.plot(*zip(*line, strict=True), color=plots.INK, linewidth=0.7, alpha=0.6)
    true = sorted({place for place, by in zip(places, aside, strict=True) if by})
    axis.plot(true, [0.0] * len(true), "|", markersize=STROKE, color=plots.INK, alpha=0.5, clip_on=False,
              transform=axis.get_xaxis_transform())  # fmt: skip
    upright: list[Segment] = [
        ((place + by, low), (place + by, high))
        for place, by, (low, high) in zip(places, aside, bars, strict=True)
    ]
    for value in {row["value"] for row in some if is_full(row)}:
        _called(axis, value, [*upright, *pairwise(line)])
    return plots.svg(made), any(aside)


def _limits(axis: Any, some: list[Row], right: bool) -> None:
    """Room for every mark and interval; sizes on a logarithmic axis where they span much."""
    sizes = [s for s in map(kib, some) if s > 0] or [1.0]
    small, held = min(sizes), max(sizes)
    if held > plots.RANGE * small:
        axis.set_xscale("log")
        spare = (held / small) ** SPARE
        axis.set_xlim(small / spare, held * spare)
        plots.plain(axis.xaxis)
    else:
        axis.set_xlim(-SPARE * held, (1 + SPARE) * held)
        axis.locator_params(axis="x", nbins=5)  # more run together
        axis.xaxis.set_major_formatter("{x:,.0f}" if held > FEW else "{x:g}")
    ends = [v for r in some for v in (r["value"], r["low"], r["high"]) if v is not None]
    low, high = (0.0, 1.0) if right else (min(ends), max(ends))
    spare = ROOM * (high - low or 1.0)
    axis.set_ylim(low - spare, high + spare)
    if right:
        axis.yaxis.set_major_formatter(plots.percent)


def _called(axis: Any, value: float, lines: list[Segment]) -> None:
    """What the dashed line is: above or below it, at its right or its left end, where the fewest of `lines` cross
    the name."""
    point = axis.figure.dpi / 72
    (left, low), (right, high) = axis.transAxes.transform([(0, 0), (1, 1)])
    across = axis.transData.transform((axis.get_xlim()[0], value))[1]
    paths = [_along(*axis.transData.transform(line)) for line in lines]

    def crossed(place: tuple[str, str]) -> tuple[bool, int]:
        end, side = place
        start = right - LETTERS * point if end == "right" else left
        foot = across + point * (1 if side == "bottom" else -LINE - 3)
        top = foot + (LINE + 2) * point
        inside = [
            any(
                start - point <= x <= start + (LETTERS + 1) * point and foot <= y <= top
                for x, y in path
            )
            for path in paths
        ]
        return not low <= foot < top <= high, sum(inside)

    end, side = min(product(("right", "left"), ("bottom", "top")), key=crossed)
    axis.annotate(
        NAME, (end == "right", value), (0, 3 if side == "bottom" else -3), xycoords=axis.get_yaxis_transform(),
        textcoords="offset points", fontsize=8, color=plots.INK, ha=end, va=side,
    )  # fmt: skip


def _along(start: Any, end: Any) -> list[tuple[float, float]]:
    """Points on the way from one place to another, dense enough that no name lies between two."""
    return [
        (start[0] + part * (end[0] - start[0]) / 100, start[1] + part * (end[1] - start[1]) / 100)
        for part in range(101)
    ]


def held(row: Row) -> str:
    """The bytes of keys and values that a cell holds, for a sentence."""
    return human(int(row["kv_bytes"]))


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
