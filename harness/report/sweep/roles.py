"""Which option of a sweep a picture tells by place, by colour and by size, so that what moves its figure most is told."""

import math
from itertools import pairwise
from statistics import fmean, pvariance
from typing import Any

from harness.report.sweep.variation import group as grouped
from harness.report.sweep.variation import is_seed

LITTLE = 0.05  # of the spread of figures: an option that explains less moves them by chance at most

Row = dict[str, Any]


def explained(rows: list[Row], axis: str, keys: list[str]) -> float:
    """The share of the spread of figures, in decades, that lies between the values of an option: the mean over those
    of `keys` that spread. What is nothing counts as the least that is something."""
    shares = []
    for key in keys:
        there = [row for row in rows if isinstance(row.get(key), int | float)]
        least = min((row[key] for row in there if row[key] > 0), default=1.0)
        height = {id(row): math.log10(max(row[key], least)) for row in there}
        if all_in := pvariance(height.values()) if there else 0.0:
            some = [[height[id(row)] for row in mine] for mine in grouped(there, [axis]).values()]
            shares.append(pvariance([fmean(s) for s in some for _ in s]) / all_in)
    return fmean(shares) if shares else 0.0


def given(rows: list[Row], axes: list[str], x: str, by: str | None) -> tuple[str | None, list[str]]:
    """The option that a mark's size tells where its place is by `x` and its colour by `by`, and those that no mark
    tells: a place on an axis of numbers names no option."""
    rest = [a for a in axes if a not in (x, by) and len(values(rows, a)) <= 3]
    free = [a for a in rest if not ordered(rows, a, x)]
    size = next((a for a in free if not _placed(rows, a, x)), next(iter(free), None))
    told = (x, by, size)
    return size, [a for a in axes if a not in told and not (ordered(rows, a, x) or (x in axes and _placed(rows, a, x)))]  # fmt: skip


def chosen(
    rows: list[Row], axes: list[str], xs: list[str], bys: list[str | None], keys: list[str]
) -> tuple[str, str | None]:
    """The first of `xs` and of `bys`, if with these the options that no mark tells explain little; else the other pair
    with which they explain least: what moves the figures most stands along the axis."""
    weight = {axis: explained(rows, axis, keys) for axis in axes}
    ranked = sorted(xs[1:], key=lambda axis: -weight[axis])
    ways = [(x, by if by != x else None) for by in bys for x in (xs[0], *ranked)]
    most = max(weight.values(), default=0.0)

    def lacks(way: tuple[str, str | None]) -> tuple[float, bool, bool]:
        """How much of the figures no mark tells; whether its place tells nothing, which would draw one column again and
        again; whether it has a size in place of a colour, which is seen first."""
        mute = sum(weight[a] for a in given(rows, axes, *way)[1])
        little = most > LITTLE > weight.get(way[0], most)
        idle = little and way[0] != "dtype"  # each of which has a noise floor of its own
        return round(mute, 1), idle, way[1] is None and way[0] != xs[0]

    return min(ways, key=lacks)


def values(rows: list[Row], key: str) -> list[str]:
    """What the points have there, in the order of their first."""
    return list(dict.fromkeys(str(r.get(key, "")) for r in rows))


def ordered(rows: list[Row], axis: str, x: str) -> list[str]:
    """The values of an option from the left to the right of a picture, where they are numbers and each has a
    part of its own: the place of a mark tells them apart. None otherwise."""
    spans: dict[str, list[float]] = {}
    if is_seed(axis):
        return []
    try:
        for row in rows:
            spans.setdefault(str(row[axis]), []).append(float(row[x]))
        list(map(float, spans))
    except (TypeError, ValueError):
        return []
    order = sorted(spans, key=lambda value: min(spans[value]))
    apart = all(max(spans[a]) < min(spans[b]) for a, b in pairwise(order))
    return order if apart and len(rows) > len(order) > 1 else []


def _placed(rows: list[Row], axis: str, x: str) -> bool:
    """Whether all points in one place have one value of an option: no mark need tell it."""
    return all(len(values(some, axis)) == 1 for some in grouped(rows, [x]).values())
