"""The points of a sweep in one panel: whose a point is, in colour and shape, and what it came to, in how full
its mark is."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from harness.report.picture import axes, marks, plots
from harness.report.picture.plots import INK, MARKERS, VERDICTS

FULL = {
    "good": "full",
    "alike": "left",
    "soft": "full",
    "fair": "none",
    "bad": "none",
    "soft fair": "none",
    "soft bad": "none",
}  # grey, as what is allowed, and as full as what it is
FULLNESS = {
    "good": "\u25cf",
    "alike": "\u25d0",
    "soft": "\u25cf",
    "fair": "\u25cb",
    "bad": "\u2297",
    "soft fair": "\u25cb",
    "soft bad": "\u2297",
}
CROSSED, PALE = ("bad", "soft bad"), "soft"  # a cross inside; half transparent
SIZE, INSIDE = 7.0, 0.5  # points across a marker; how large the cross in it is beside it
TICK = 14  # characters of a name under an axis
BESIDE = 0.5  # how far markers above one name stand apart, as a share of the way to the next
TRUE = 13.0  # points of the thin line at the true place of marks that stand side by side
LEGIBLE = 5  # numbers under an axis
TICKS, SLANT, LETTER = 46, 30, 0.07  # characters that fit under an axis; degrees; inches of one
LOST = 1e5  # so many times below the next, values are practically nothing beside it
DASHED = {"color": INK, "linestyle": "--", "linewidth": 0.9, "alpha": 0.7}
WHOLE = ("%", "ratio")  # units of which a part of an axis would make little look like much
ASIDE = "Marks that would hide one another stand side by side, a thin line is at their true place."

Row = dict[str, Any]


def scatter(
    rows: list[Row], x: str, y: str, kind: Callable[[Row], str], by: str | None, title: str, under: str, beside: str,
    told: Sequence[str] = (), limit: float | None = None,
) -> str:  # fmt: skip
    """A picture of points, `rows[x] -> rows[y]`, how full by `kind(row)` (a key of `plots.VERDICTS`), coloured by the same
    or by the value of `by`, which has a marker of its own too. `x` may name things instead of numbers. Marks that would
    hide one another stand side by side. told: what a mark names when it is pointed at. limit: of `y`, a dashed line. What is practically nothing
    beside the rest stands at the foot, under one tick. Rows without `x` or `y` are left out."""
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    shown = [r for r in rows if r.get(x) is not None and isinstance(r.get(y), int | float)]
    places, names = positions([r[x] for r in shown])
    heights = [float(r[y]) for r in shown]
    groups = markers(rows, by)
    own = [list(groups).index(str(r[by])) if by else 0 for r in shown]
    nothing = lost(heights)
    if limit is not None and (limit <= nothing or not heights):
        limit = None  # it has no height beside the rest
    footed(axis, [*heights, *([] if limit is None else [limit])], nothing)
    if beside.startswith(WHOLE) and axis.get_yscale() == "linear":
        axis.set_ylim(0, (1 + axes.ROOM) * max([*heights, limit or 0.0]) or 1.0)
    if names:
        named(made, axis, brief(names))
    else:
        numbered(axis, places)
    slots = _slots(axis, places, heights, own)
    if names:
        most = max(slots, default=0)
        aside = [BESIDE * (slot / most - 0.5) if most else 0.0 for slot in slots]
    else:
        aside = axes.within(axis, places, heights, slots)
    moved = [] if names else [place for place, by_ in enumerate(aside) if by_]
    axis.plot([places[i] for i in moved], [heights[i] for i in moved], linestyle="none", marker="|",
              markersize=TRUE, color=INK, markeredgewidth=0.8)  # fmt: skip
    for number, group in enumerate(groups):
        for tone, (ink, _) in ((tone, VERDICTS[tone.split()[0]]) for tone in FULL):
            mine = [i for i, whose in enumerate(own) if whose == number and kind(shown[i]) == tone]
            at = [(places[i] + aside[i], heights[i]) for i in mine]
            whose = marks.gid([shown[i] for i in mine], dict.fromkeys([x, *told]))
            _marked(axis, at, groups[group], tone, colour(number) if by else ink, whose)
    if limit is not None:
        axis.axhline(limit, **DASHED)
    plots.label(axis, title, under, beside)
    return marks.linked(plots.svg(made))


def _slots(axis: Any, places: list[float], heights: list[float], own: list[int]) -> list[int]:
    """Which marks may stand in one place: those of one group, where none of its marks hides another; elsewhere each point
    that is the same has its own."""
    spots = list(zip(own, places, axes.lanes_of(axis, heights)))
    if len(set(spots)) == len(spots):
        return own
    keys, seen = [], Counter[Any]()
    for spot in spots:
        keys.append((spot[0], seen[spot]))
        seen[spot] += 1
    order = sorted(dict.fromkeys(keys))
    return [order.index(key) for key in keys]


def ticks(places: list[float]) -> list[float]:
    """The places themselves, where they are few and far enough apart to be read; none elsewhere."""
    there = sorted(set(places))
    wide = there[-1] - there[0] if there else 0.0
    apart = all(b - a >= wide / LEGIBLE for a, b in pairwise(there))
    return there if 1 < len(there) <= LEGIBLE and apart else []


def numbered(axis: Any, places: list[float]) -> None:
    """Numbers under an axis: the places themselves, or round ones, none below zero where no place is."""
    axes.between(axis.xaxis, places)
    if few := ticks(places):
        axis.set_xticks(few, [f"{p:,.0f}" if p == int(p) else f"{p:.4g}" for p in few])
        return
    axis.locator_params(axis="x", nbins=4, integer=all(p == int(p) for p in places))
    low, high = axis.get_xlim()
    least = max(low, min((0.0, *places)))  # the axis begins before its first mark
    axis.set_xticks([tick for tick in axis.get_xticks() if least <= tick <= high])


def named(made: Any, axis: Any, names: list[str]) -> None:
    """Names under an axis, slanted where they do not fit side by side, with room for them below."""
    slanted = sum(map(len, names)) + 2 * len(names) > TICKS
    if slanted:
        lower = max(map(len, names)) * LETTER * math.sin(math.radians(SLANT)) / plots.HEIGHT
        made.subplots_adjust(bottom=made.subplotpars.bottom + lower)
    style = {"rotation": SLANT, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axis.set_xticks(range(len(names)), names, **style)
    axis.set_xlim(-0.7, len(names) - 0.3)


def footed(axis: Any, values: list[float], nothing: float | None = None) -> None:
    """Scale an axis to these values: what is practically nothing beside the rest (`lost`; nothing: the largest of
    that, where it is known) stands at its foot."""
    nothing = lost(values) if nothing is None else nothing
    plots.scaled(axis, values, nothing)
    axes.between(axis.yaxis, values)
    plots.plain(axis.yaxis)
    if nothing:
        _foot(axis, nothing)


def colour(number: int) -> str:
    """That of the group of this number."""
    return plots.COLOURS[number % len(plots.COLOURS)]


def lost(values: list[float]) -> float:
    """The largest of those that are practically nothing beside the rest: below the widest gap, if it is wide
    enough to flatten all that is above it on one logarithmic axis. 0 where there is none."""
    positive = sorted({v for v in values if v > 0})
    below, above = max(pairwise(positive), key=lambda pair: pair[1] / pair[0], default=(1.0, 1.0))
    return below if above > LOST * below else 0.0


def _marked(
    axis: Any, at: list[tuple[float, float]], marker: str, tone: str, ink: str, whose: str | None
) -> None:
    """Marks of one kind; a cross inside of what went wrong, where it hides neither shape nor neighbour."""
    if not at:
        return
    xs, ys = zip(*at, strict=True)
    axis.plot(xs, ys, linestyle="none", marker=marker, fillstyle=FULL[tone], markersize=SIZE,
              color=ink, markerfacecoloralt="none", markeredgewidth=1.1, gid=whose,
              alpha=plots.HALF if tone == PALE else 0.95)  # fmt: skip
    if tone in CROSSED:
        axis.plot(xs, ys, linestyle="none", marker="x", color=ink, markersize=INSIDE * SIZE, markeredgewidth=1)  # fmt: skip


def _foot(axis: Any, nothing: float) -> None:
    """A lane below the axis proper, its one tick says what it holds at most."""
    low, round_ = axis.get_ylim()[0], plots.steps(nothing, 10 * nothing, plots.BETWEEN)[0]
    most = f"\u2264 {plots.tick(round_)}"
    axis.axhspan(low, -low, color=INK, alpha=0.06, linewidth=0)
    ticks = list(axis.get_yticks())
    written = axis.yaxis.get_major_formatter()
    axis.set_yticks(ticks, [most if t == 0 else written(t) for t in ticks])


def brief(said: list[str]) -> list[str]:
    """Names as short as an axis needs them and still told apart: without the folder that all share, and
    cut where what is left differs."""
    folders = {name.rpartition("/")[0] for name in said}
    whole = [name.rpartition("/")[2] for name in said] if len(folders) == 1 else said
    alike = len({name[: TICK // 2 + 1] for name in whole}) == 1  # what differs is at the end
    ways = [
        [_cut(name, tail) for name in whole]
        for tail in ((TICK // 2, 0) if alike else (0, TICK // 2))
    ]
    told = (cut for cut in ways if len(set(cut)) == len(set(whole)))
    return next(told, [f"{i + 1}: {_cut(name, 0)}" for i, name in enumerate(whole)])


def _cut(name: str, tail: int) -> str:
    """A name with so many of its last characters, and as many of its first as there is room for."""
    if len(name) <= TICK:
        return name
    return f"{name[: TICK - 1 - tail]}\u2026{name[len(name) - tail :]}"


def positions(values: list[Any]) -> tuple[list[float], list[str]]:
    """Where values stand on an axis: as the numbers they are, or by name in order of appearance."""
    with suppress(TypeError, ValueError):
        return [float(v) for v in values], []
    seen = list(dict.fromkeys(str(v) for v in values))
    return [float(seen.index(str(v))) for v in values], seen


def markers(rows: list[Row], by: str | None) -> dict[str, str]:
    """A marker per value of `by`; one for all where there are more values than markers."""
    groups = list(dict.fromkeys(str(r[by]) for r in rows)) if by else [""]
    return {
        group: MARKERS[i] if len(groups) <= len(MARKERS) else "o" for i, group in enumerate(groups)
    }
