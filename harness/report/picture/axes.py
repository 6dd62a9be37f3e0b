"""How far an axis reaches, and where marks stand that would hide one another."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

ROOM = 0.08  # of an axis beyond its first and last value: half a mark needs it
ALIKE = 0.01  # an axis spans at least that share of its values: to a byte nobody looks
WIDER = 4  # times at most: what is wider has fewer points to a unit
MARK, STEP, ABREAST = 6.0, 7.0, 42.0  # points: marks nearer hide one another; apart; a row at most


def between(axis: Any, values: list[float]) -> None:
    """Limit an axis (`.xaxis` or `.yaxis`) to these values, as it is scaled, with room for whole marks; plain
    numbers at its ticks. A lower limit that `scaled` has set stays."""
    some = [v for v in values if math.isfinite(v)] or [0.0]
    scale, there = axis.get_scale(), axis.get_transform()
    foot = axis.get_view_interval()[0] if scale == "symlog" else min(some)
    low, high = (float(there.transform([v])[0]) for v in (foot, max(some)))
    spare = ROOM * (high - low)
    if scale == "linear":
        axis.axes.ticklabel_format(axis=axis.axis_name, useOffset=False)
        least = ALIKE * max(abs(low), abs(high)) or 1.0
        spare = max(spare, (least - (high - low)) / 2)
    ends = [low - spare * (scale != "symlog"), high + spare]
    axis.axes.set(**{f"{axis.axis_name}lim": there.inverted().transform(ends)})


def abreast(
    axis: Any,
    xs: list[float],
    ys: list[float],
    groups: list[int],
    step: float = STEP,
    most: float = ABREAST,
    bars: Sequence[tuple[float, ...]] | None = None,
) -> list[float]:
    """How far aside of their `xs`, in its units, marks are drawn so that they do not hide one of another group:
    side by side in the order of their places, as near to these as that goes and as far apart at any scale; 0
    for what stands alone. The axes have their limits. step: points between two neighbours; most: of a row.
    bars: from where to where the line through each mark reaches, which is to hide none either."""
    pixel = axis.figure.dpi / 72  # of a point
    back = axis.transData.inverted()
    spots = axis.transData.transform(list(zip(xs, ys, strict=True))) / pixel if xs else []
    aside = [0.0] * len(xs)
    lanes = _lanes([float(y) for _, y in spots])
    if bars and xs:
        ends = [axis.transData.transform([(x, y) for y in bar]) for x, bar in zip(xs, bars)]
        lanes = _crossing([(float(e[0][1]) / pixel, float(e[-1][1]) / pixel) for e in ends])
    for lane in lanes:
        marks = sorted({(float(spots[place][0]), groups[place]) for place in lane})
        drawn = dict(zip(marks, _spread(marks, step, most), strict=True))
        for place in lane:
            x, y = map(float, spots[place])
            at = drawn[x, groups[place]]
            if at != x:
                aside[place] = float(back.transform((at * pixel, y * pixel))[0]) - xs[place]
    return aside


def within(axis: Any, xs: list[float], ys: list[float], groups: list[int]) -> list[float]:
    """As `abreast`, where a row keeps to its place: it ends before the next one's, or a mark's width aside where these
    are dense, and not below zero where no place does. The axis is made wider for whole marks."""
    aside = _kept(axis, xs, ys, groups)
    for _ in range(WIDER):
        low, high = axis.get_xlim()
        half = MARK * _point(axis)
        at = [x + by for x, by in zip(xs, aside, strict=True) if by]
        if not at or (min(at) - half >= low and max(at) + half <= high):
            break
        axis.set_xlim(min(low, min(at) - half), max(high, max(at) + half))
        aside = _kept(axis, xs, ys, groups)
    return aside


def _kept(axis: Any, xs: list[float], ys: list[float], groups: list[int]) -> list[float]:
    point, least = _point(axis), min((0.0, *xs))
    way = min((after - x for x, after in pairwise(sorted(set(xs)))), default=math.inf) / point
    row = max(2 * STEP, min(ABREAST, way - STEP))
    most = row / 2 * point
    aside = abreast(axis, xs, ys, groups, most=row)
    return [max(min(by, most), -most, least - x) for x, by in zip(xs, aside, strict=True)]


def _point(axis: Any) -> float:
    """A point of the page in units of an axis."""
    low, high = axis.get_xlim()
    return float((high - low) * axis.figure.dpi / 72 / axis.bbox.width)


def lanes_of(axis: Any, ys: list[float], near: float = MARK) -> list[int]:
    """By their number, the lanes of marks that are so near one another in height that one may hide another. The
    axis has its limits. near: points."""
    spots = axis.transData.transform([(0.0, y) for y in ys]) if ys else []
    numbers = [0] * len(ys)
    for number, lane in enumerate(
        _lanes([float(y) * 72 / axis.figure.dpi for _, y in spots], near)
    ):
        for place in lane:
            numbers[place] = number
    return numbers


def _lanes(ys: list[float], near: float = MARK) -> list[list[int]]:
    """The marks that lie so near one another in height that one may hide another."""
    lanes: list[list[int]] = []
    for place in sorted(range(len(ys)), key=ys.__getitem__):
        if lanes and ys[place] - ys[lanes[-1][0]] < near:
            lanes[-1].append(place)
        else:
            lanes.append([place])
    return lanes


def _crossing(bars: list[tuple[float, float]]) -> list[list[int]]:
    """The marks whose bars overlap in height, or lie within a mark of one another."""
    lanes: list[list[int]] = []
    reach = 0.0
    for place in sorted(range(len(bars)), key=bars.__getitem__):
        low, high = bars[place]
        if lanes and low - reach < MARK:
            lanes[-1].append(place)
            reach = max(reach, high)
        else:
            lanes.append([place])
            reach = high
    return lanes


def _spread(marks: list[tuple[float, int]], step: float, row: float) -> list[float]:
    """Where these `(place, group)`, in order, are drawn: two neighbours of other groups at least a step apart.
    Those that are too near share out the way, so that the least of it is gone."""
    most = max(len({g for other, g in marks if abs(other - x) < MARK}) for x, _ in marks)
    step = min(step, row / max(most - 1, 1))
    feet = [0.0]  # how far a mark has to be from the first
    for (x, one), (after, two) in pairwise(marks):
        feet.append(feet[-1] + step * (one != two and after - x < MARK))
    blocks: list[tuple[float, int]] = []  # the mean of those that stand together, how many
    for (x, _), foot in zip(marks, feet, strict=True):
        mean, count = x - foot, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    return [mean + foot for mean, foot in zip(means, feet, strict=True)]
