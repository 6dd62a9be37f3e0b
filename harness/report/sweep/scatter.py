"""The points of a sweep in one panel: whose a point is, in colour and shape, and what it came to, in how full
its mark is."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from harness.report.picture import axes, plots
from harness.report.picture.plots import INK, MARKERS, VERDICTS
from harness.report.sweep import marks

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
SIZES = (4.5, 7.0, 10.0)  # points across a marker, by the second option
SIZE, INSIDE = 7.0, 0.5  # points across a marker; how large the cross in it is beside it
TICK = 14  # characters of a name under an axis
BESIDE = 0.5  # how far markers above one name stand apart, as a share of the way to the next
TRUE = 13.0  # points of the thin line at the true place of marks that stand side by side
LEGIBLE = 5  # numbers under an axis
TICKS, SLANT, LETTER = 46, 30, 0.07  # characters that fit under an axis; degrees; inches of one
NAME = 11.0  # points from the foot of a line's name to the next's
LOST = 1e5  # so many times below the next, values are practically nothing beside it
DASHED = {"color": INK, "linestyle": "--", "linewidth": 0.9, "alpha": 0.7}
WHOLE = ("%", "ratio")  # units of which a part of an axis would make little look like much
ASIDE = "Marks that would hide one another stand side by side, a thin line is at their true place."

Row = dict[str, Any]


def scatter(
    rows: list[Row], x: str, y: str, kind: Callable[[Row], str], by: tuple[str | None, str | None],
    title: str, under: str, beside: str, floors: dict[str, float] | None = None, apart: Sequence[str] | None = (),
    by_name: bool = False, limit: float | None = None, told: Sequence[str] = (), only: tuple[str, str] | None = None,
) -> tuple[str, bool]:  # fmt: skip
    """The picture, and whether any mark in it stands beside its true place, which a thin line then shows.

    Points `rows[x] -> rows[y]`, how full by `kind(row)` (a key of `plots.VERDICTS`), coloured by the same or,
    where there is a first of `by`, by its value, which has a marker of its own too; one size per value of the
    second. `x` may name things instead of numbers; groups stand side by side above a name, and on a number
    where their marks would hide one another; by_name: even where they are numbers.
    Of a group those are joined that are the same in all that `apart` names; None: none are.
    only: an option and its value, of which alone the marks are drawn, in the axes of all.
    limit: what of `y` is allowed, a dashed line. told: what else a mark names when it is pointed at.
    floors: dashed lines, by the value of `x` that each belongs to, else named at their end. What is
    practically nothing beside the rest stands at the foot, under one tick. Rows without `y` are left out."""
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    shape, size = by
    shown = [r for r in rows if r[x] is not None and isinstance(r[y], int | float)]
    places, names = positions([r[x] for r in shown], by_name)
    heights = [float(r[y]) for r in shown]
    groups, large = markers(rows, shape), list(markers(rows, size))
    own = [list(groups).index(str(r[shape])) if shape else 0 for r in shown]
    every = heights + list((floors or {}).values())
    nothing = lost(every)
    if limit is not None and (limit <= nothing or not every):
        limit = None  # it has no height beside the rest
    every += [] if limit is None else [limit]
    footed(axis, every, nothing)
    if beside.startswith(WHOLE) and axis.get_yscale() == "linear":
        axis.set_ylim(0, (1 + axes.ROOM) * max(every, default=0.0) or 1.0)
    if names:
        named(made, axis, brief(names))
    else:
        numbered(axis, places)
    if only:
        mine = [i for i, row in enumerate(shown) if str(row[only[0]]) == only[1]]
        shown, own = [shown[i] for i in mine], [own[i] for i in mine]
        places, heights = [places[i] for i in mine], [heights[i] for i in mine]
    slots = _slots(axis, shown, places, heights, own, size)
    if names:
        most = max(slots, default=0)
        aside = [BESIDE * (slot / most - 0.5) if most else 0.0 for slot in slots]
    else:
        aside = axes.within(axis, places, heights, slots)
    moved = [] if names else [place for place, by in enumerate(aside) if by]
    axis.plot([places[i] for i in moved], [heights[i] for i in moved], linestyle="none", marker="|",
              markersize=TRUE, color=INK, markeredgewidth=0.8)  # fmt: skip
    for number, group in enumerate(groups):
        mine = [i for i, whose in enumerate(own) if whose == number]
        if shape and not names and apart is not None:
            lines: dict[tuple[str, ...], list[tuple[float, float]]] = {}
            for i in mine:
                alike = tuple(str(shown[i].get(a)) for a in apart)
                lines.setdefault(alike, []).append((places[i], heights[i]))
            for line in lines.values():
                _joined(axis, line, colour(number))
        for tone, (ink, _) in ((tone, VERDICTS[tone.split()[0]]) for tone in FULL):
            for place in reversed(range(len(large))):  # the smaller above the larger
                some = [i for i in mine if kind(shown[i]) == tone
                        and (not size or large.index(str(shown[i][size])) == place)]  # fmt: skip
                at = [(places[i] + aside[i], heights[i]) for i in some]
                across = SIZES[place] if size else SIZE
                whose = marks.gid(
                    [shown[i] for i in some],
                    dict.fromkeys([x, *filter(None, by), *(apart or ()), *told]),
                )
                _marked(axis, at, groups[group], tone, colour(number) if shape else ink, across, whose)  # fmt: skip
    _noise(axis, floors or {}, names)
    if limit is not None:
        axis.axhline(limit, **DASHED)
    plots.label(axis, title, under, beside)
    return marks.linked(plots.svg(made)), bool(moved)


def _slots(
    axis: Any, rows: list[Row], places: list[float], heights: list[float], own: list[int], size: str | None
) -> list[int]:  # fmt: skip
    """Which marks may stand in one place: those of one group, where none of its marks hides another; elsewhere
    each value of `size` has its own, and so has each point that is the same even there."""
    lane = axes.lanes_of(axis, heights)
    spots = list(zip(own, places, lane))
    if len(set(spots)) == len(spots):
        return own
    keys, there = [], Counter[Any]()
    for row, spot in zip(rows, spots):
        whose = (spot[0], str(row[size]) if size else "")
        keys.append((*whose, there[whose, spot]))
        there[whose, spot] += 1
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
    axis: Any,
    at: list[tuple[float, float]],
    marker: str,
    tone: str,
    ink: str,
    size: float,
    whose: str | None,
) -> None:
    """Marks of one kind; a cross inside of what went wrong, where it hides neither shape nor neighbour."""
    if not at:
        return
    xs, ys = zip(*at, strict=True)
    axis.plot(xs, ys, linestyle="none", marker=marker, fillstyle=FULL[tone], markersize=size,
              color=ink, markerfacecoloralt="none", markeredgewidth=1.1, gid=whose,
              alpha=plots.HALF if tone == PALE else 0.95)  # fmt: skip
    if tone in CROSSED:
        axis.plot(xs, ys, linestyle="none", marker="x", color=ink, markersize=INSIDE * size, markeredgewidth=1)  # fmt: skip


def _joined(axis: Any, mine: list[tuple[float, float]], ink: str) -> None:
    """A thin line through the points of a group that has one at each place."""
    if mine and len({p for p, _ in mine}) == len(mine):
        axis.plot(*zip(*sorted(mine), strict=True), color=ink, linewidth=0.8, alpha=plots.JOIN)


def _foot(axis: Any, nothing: float) -> None:
    """A lane below the axis proper, its one tick says what it holds at most."""
    low, round_ = axis.get_ylim()[0], plots.steps(nothing, 10 * nothing, plots.BETWEEN)[0]
    most = f"\u2264 {plots.tick(round_)}"
    axis.axhspan(low, -low, color=INK, alpha=0.06, linewidth=0)
    ticks = list(axis.get_yticks())
    written = axis.yaxis.get_major_formatter()
    axis.set_yticks(ticks, [most if t == 0 else written(t) for t in ticks])


def _noise(axis: Any, floors: dict[str, float], names: list[str]) -> None:
    """A dashed line per noise floor: above its own name on the axis, else across, with its name, or with all names of
    those that lie too near one another to be read."""
    across = {name: floor for name, floor in floors.items() if name not in names}
    for name in floors.keys() - across.keys():
        place, floor = names.index(name), floors[name]
        axis.plot([place - 0.45, place + 0.45], [floor, floor], **DASHED)
    lanes: dict[int, list[str]] = {}
    for (name, floor), lane in zip(across.items(), axes.lanes_of(axis, [*across.values()], NAME)):
        axis.axhline(floor, **DASHED)
        lanes.setdefault(lane, []).append(name)
    for near in lanes.values() if len(floors) > 1 else ():
        axis.text(1, max(across[name] for name in near), ", ".join(near), fontsize=8, color=INK, ha="right",
                  va="bottom", transform=axis.get_yaxis_transform())  # fmt: skip


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


def positions(values: list[Any], by_name: bool = False) -> tuple[list[float], list[str]]:
    """Where values stand on an axis: as the numbers they are, or by name in order of appearance."""
    if not by_name:
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
