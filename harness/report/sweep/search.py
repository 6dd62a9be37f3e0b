"""The page of a search (Optuna): its objectives against each other, and the Pareto front."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from harness.report.html import cell as link
from harness.report.html import section
from harness.report.names import plain
from harness.report.picture import plots
from harness.report.sweep import variation
from harness.report.sweep.distance import as_near
from harness.report.sweep.verdicts import target
from harness.snapshot.objective import ANSWERS, BYTES, KIB, directions, front, shown

Row = dict[str, Any]
RIGHT = next(iter(ANSWERS))
NEAR = "metrics.kl_mean"  # by which points are called near
NONE: Mapping[str, str] = {}
SHARES = (RIGHT, "evaluate.exact")  # in percent on a page
APART = 0.07  # of the picture's height between two points that are named in it: a line of text
WORDS = {1: "more is better", -1: "less is better", 0: ""}


def ways(folder: Path, rows: list[Row]) -> dict[str, int]:
    """What the points of the sweep in `folder` are told apart by: what its sweeper looks for, or of evaluations
    that were asked the same the first two of right answers, bytes and divergence that are not all alike."""
    wanted = directions(folder)
    if wanted or not rows or any(map(variation.asks, variation.varied(rows))):
        return wanted
    names = [n for n in ANSWERS if len({row[n] for row in rows if n in row}) > 1]
    return {name: ANSWERS[name] for name in names[:2]}


def sections(
    rows: list[Row], axes: list[str], ways: dict[str, int], sure: Mapping[str, str] = NONE
) -> list[Row]:
    """One block where there are two objectives. ways: objective -> 1, -1 or 0, as `objective.directions`.
    sure: the 95% intervals of the share of right answers, by point."""
    drawn = [r for r in rows if all(isinstance(r.get(name), int | float) for name in ways)]
    if len(ways) == 1 and drawn[1:]:
        return [_single(drawn, axes, *next(iter(ways.items())))]
    if len(ways) != 2 or not drawn:
        return []
    across, up = sorted(ways, key=lambda name: ways[name])  # what should be small goes to the right
    best = front(drawn, ways)
    told = [f"{plain(name)} ({WORDS[way]})" if way else plain(name) for name, way in ways.items()]
    text = f"Every point by its two objectives: {' and '.join(told)}."
    legend = ""
    if best:
        text += " Joined: the Pareto front, which no other point beats in both."
        legend = (
            "<span><b>\u25c6</b> on the front</span><span><b>\u25cb</b> beaten by another</span>"
        )
    picture = _picture(drawn, best, across, up, axes)
    made = [section("Objectives", text=text, legend=legend, panels=[picture])]
    if best:
        first = sorted((drawn[place] for place in best), key=lambda row: row[across])
        table = [
            [
                link(r["point"], target(r)),
                *(plots.short(r[a]) for a in axes),
                *(cell(n, r[n]) for n in ways),
                *[sure.get(r["point"])] * bool(sure),
            ]
            for r in first
        ]
        columns = ["folder", *axes, *map(heading, ways), *["right, 95% interval"] * bool(sure)]
        made.append(section("The Pareto front", columns=columns, rows=table))
    return made


def _single(rows: list[Row], axes: list[str], name: str, way: int) -> Row:
    """The one objective over the first number that was varied, or point by point."""
    across = next((a for a in axes if all(map(_number, (r[a] for r in rows)))), None)
    x = [float(r[across]) if across else i for i, r in enumerate(rows)]
    y = [r[name] / KIB if name.endswith(BYTES) else r[name] for r in rows]
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    axis.scatter(x, y, s=26, facecolors="none", edgecolors=plots.INK, linewidths=0.9, alpha=0.6)
    told = f"Every point by its objective: {plain(name)}."
    if best := front(rows, {name: way}):
        told = f"{told[:-1]} ({WORDS[way]}). Filled: the best."
        axis.plot([x[i] for i in best], [y[i] for i in best], "D", color=plots.VERDICTS["alike"][0])
    if name in SHARES:
        axis.yaxis.set_major_formatter(plots.percent)
    plots.label(axis, heading(name), across or "point", "by point")
    return section("Objective", text=told, panels=[plots.svg(made)])


def _number(value: Any) -> bool:
    try:
        return isfinite(float(value))
    except (TypeError, ValueError):
        return False


def headline(rows: list[Row], ways: dict[str, int]) -> str:
    """How many points are worth a look, in a few words; empty where no direction is known."""
    best = front(rows, ways)
    return f"{len(best)} of {len(rows)} on the Pareto front" if best and len(ways) > 1 else ""


def conclusion(rows: list[Row], ways: dict[str, int], sure: Mapping[str, str] | None = None) -> str:
    """What the front reaches, in one sentence; empty where there is none. sure: as of `sections`, on a page, where
    shares are in percent."""
    best = [rows[place] for place in front(rows, ways)]
    if not best:
        return ""
    if limit := unreached(rows, ways):
        least = _told(best[0], ways, sure)
        return (
            f"The smallest tried: {limit[0]}={plots.short(best[0][limit[0]])} ({least}). {limit[1]}"
        )
    return reached(rows, ways, sure)


def unreached(rows: list[Row], ways: dict[str, int]) -> tuple[str, ...]:
    """`(option, warning)` of a search for as much as possible in as little as possible, all points of which have as
    much: where that ends was not found. Empty elsewhere."""
    best, axes = front(rows, ways), variation.varied(rows, ways)
    if sorted(ways.values()) != [-1, 1] or len(best) != 1 or len(axes) != 1 or not rows[2:]:
        return ()
    good = max(ways, key=lambda name: ways[name])
    if len({row.get(good) for row in rows}) != 1 or not all(_number(row[axes[0]]) for row in rows):
        return ()
    tried, mine = [float(row[axes[0]]) for row in rows], float(rows[best[0]][axes[0]])
    if mine not in (min(tried), max(tried)):
        return ()
    side = "below" if mine == min(tried) else "above"
    value = f"{axes[0]}={plots.short(rows[best[0]][axes[0]])}"
    return axes[0], (
        f"Every point is as good: the limit was not reached. Search {side} {value}, with a range that "
        f"ends there or more trials."
    )


def reached(rows: list[Row], ways: dict[str, int], sure: Mapping[str, str] | None = None) -> str:
    """The best point, or the ends of the front, in one sentence. Arguments as of `conclusion`."""
    best = [rows[place] for place in front(rows, ways)]
    name, axes = next(iter(ways)), variation.varied(rows, ways)
    ends = sorted(best, key=lambda row: row[name])
    least, most = (_told(row, ways, sure) for row in (ends[0], ends[-1]))
    if least != most and len(ways) > 1:
        return f"From {least} to {most}."
    point = " ".join(f"{axis}={plots.short(ends[0][axis])}" for axis in axes)
    return f"The best: {point} ({least})." if point else f"The best: {least}."


def ranked(rows: list[Row], ways: dict[str, int], once: bool = False) -> list[Row]:
    """The points of the front, the best by the first objective first; none where a direction is unknown. Of those that
    are as near as the nearest, where that is sought first, the next objective comes before. once: as older versions,
    to which none was as near."""
    best = [rows[place] for place in front(rows, ways)]

    def by(row: Row) -> tuple[float, ...]:
        return tuple(-way * row[name] for name, way in ways.items())

    if not best or once or not by_nearness(ways):
        return sorted(best, key=by)
    least = min(float(row[NEAR]) for row in best)
    near = [row for row in best if as_near(row[NEAR], least)]
    rest = [row for row in best if row not in near]
    return [*sorted(near, key=lambda row: (by(row)[1:], row[NEAR])), *sorted(rest, key=by)]


def by_nearness(ways: Mapping[str, int]) -> bool:
    """Whether what is sought first is the point that is nearest to the full cache."""
    return next(iter(ways.items()), None) == (NEAR, -1)


def hopeless(rows: list[Row], ways: dict[str, int]) -> bool:
    """Whether what should be large is nowhere above zero."""
    return any(
        way > 0 and not any((row.get(name) or 0) > 0 for row in rows) for name, way in ways.items()
    )


def cell(name: str, value: Any) -> Any:
    """A figure for the table: bytes in KiB, shares in percent, as the heading says."""
    if name in SHARES and value is not None:
        return 100 * value
    return value / KIB if name.endswith(BYTES) and value is not None else value


def heading(name: str) -> str:
    """What a figure's column is called."""
    if name in SHARES:
        return f"{plain(name).removeprefix('share of ')}, %"
    return _named(name) if name.endswith(BYTES) else plain(name)


def _named(name: str) -> str:
    return f"{plain(name).removeprefix('bytes of ')}, KiB"


def _told(row: Row, ways: dict[str, int], sure: Mapping[str, str] | None) -> str:
    known = (sure or {}).get(row.get("point", ""))
    interval = {RIGHT: f", 95% interval {known}," if known else ""}
    sizes = [f"at {shown(n, row[n])}" for n in ways if n.endswith(BYTES)]
    said = [
        f"{plain(n)} {_figure(n, row[n], sure is not None)}{interval.get(n, '')}"
        for n in ways
        if not n.endswith(BYTES)
    ]
    return " ".join(filter(None, (", ".join(said), *sizes)))


def _figure(name: str, value: Any, page: bool) -> str:
    return f"{100 * value:.3g}%" if page and name in SHARES else shown(name, value)


def _picture(rows: list[Row], best: list[int], across: str, up: str, axes: list[str]) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scale = [KIB if name.endswith(BYTES) else 1 for name in (across, up)]
    at = [(row[across] / scale[0], row[up] / scale[1]) for row in rows]
    rest = [place for place in range(len(rows)) if place not in set(best)]
    if rest:
        axis.scatter(*zip(*(at[place] for place in rest), strict=True), s=26, facecolors="none",
                     edgecolors=plots.INK, linewidths=0.9, alpha=0.6)  # fmt: skip
    if best:
        line = sorted(at[place] for place in best)
        axis.plot(*zip(*line, strict=True), "D-", color=plots.VERDICTS["alike"][0], markersize=6,
                  linewidth=1.2)  # fmt: skip
    axis.margins(x=0.08, y=0.12)
    if all(0 <= y <= 1 for _, y in at):
        axis.set_ylim(-0.05, 1.08)  # shares
    for name, place in ((across, axis.xaxis), (up, axis.yaxis)):
        if name in SHARES:
            place.set_major_formatter(plots.percent)
    if best:
        _name_some(axis, [(at[place], rows[place]) for place in best], axes)
    plots.label(axis, heading(up), heading(across), "by point")
    return plots.svg(made)


def _name_some(axis: Any, best: list[tuple[tuple[float, float], Row]], axes: list[str]) -> None:
    """What was chosen, beside the points of the front that stand far enough from the one named before: away
    from the line that joins them, and inwards, where nothing is cut off."""
    low, high = axis.get_ylim()
    middle = sum(axis.get_xlim()) / 2
    (_, first), (_, last) = (end(at for at, _ in best) for end in (min, max))
    before: float | None = None
    for (x, y), row in sorted(best, key=lambda one: -one[0][1]):
        if before is None or before - y > APART * (high - low):
            name = " ".join(plots.short(row[key]) for key in axes) or row["point"]
            left, above = x > middle, (x > middle) == (last > first)
            axis.annotate(name, (x, y), fontsize=8, color=plots.INK, textcoords="offset points",
                          xytext=(-8 if left else 8, 3 if above else -10),
                          ha="right" if left else "left")  # fmt: skip
            before = y
