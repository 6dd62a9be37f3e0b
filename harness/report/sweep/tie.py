"""Points of a sweep that are as near to the full cache as those that are marked, which only have fewer bytes."""

import math
from typing import Any

from harness.report.picture import plots
from harness.report.sweep import choice, earlier, overall
from harness.report.sweep.distance import AS_NEAR, as_near, missed
from harness.report.sweep.variation import asks
from harness.report.sweep.which import FEW

SEEDS, CLOSE = "within what the seeds differ by", f"within {AS_NEAR:.0%}"

Row = dict[str, Any]


def sentence(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which these are; empty where there are none, where no divergence was to choose by, and of several questions that
    are no seeds of one setting."""
    seeds = any(map(asks, axes))
    if not any(map(missed, winners)) or not (seeds or all(map(missed, winners))):
        return ""
    there = overall.able(rows, axes) if seeds else [[row] for row in choice.able(rows)]
    if any(row.get("kl_mean") is None for some in there for row in some):
        return ""
    chosen = {row["point"] for row in winners}
    mine = [some for some in there if {row["point"] for row in some} <= chosen]
    others = [some for some in there if some not in mine]
    if not mine or not others or sum(map(len, mine)) != len(winners):
        return ""
    own = min(map(overall.far, mine))
    near = sorted(map(overall.far, others))
    nats = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (near[0], near[-1])))
    close = as_near(near[-1], own) and as_near(own, near[0])
    named = _named(mine, others, [axis for axis in axes if not asks(axis)])
    beside = f" against {own:.3g}, {CLOSE if close else SEEDS}" * (nats != f"{own:.3g}")
    return f"As near: {named} ({nats} nats{beside}), with {_bytes(mine, others)}."


def _bytes(mine: list[list[Row]], others: list[list[Row]]) -> str:
    """How many bytes the others take, beside those that are marked."""
    times = [overall.size(some) / overall.size(mine[0]) for some in others]
    fewer = [part for part in times if part * choice.HEADER < 1]  # of points that a search chose
    if min(times) <= choice.HEADER and not fewer:
        return "no fewer bytes"
    if not others[1:]:
        memory = any(row.get("save") == "memory" for some in (*mine, *others) for row in some)
        where = " on disk" * (earlier.told() and not memory)
        return f"{times[0]:.3g} times the bytes{where}"
    return f"fewer bytes{' in part' * (len(fewer) < len(times))}" if fewer else "more bytes"


def _named(mine: list[list[Row]], others: list[list[Row]], options: list[str]) -> str:
    """The others by the values that none of those marked has, where all of both are a whole grid; else one by one."""
    own, both = (
        [choice.option(some[0], options) for some in part] for part in (mine, [*mine, *others])
    )
    values = [list(dict.fromkeys(column)) for column in zip(*both, strict=True)]
    kept = [set(column) for column in zip(*own, strict=True)]
    whole = math.prod(map(len, values)) == len(both) and math.prod(map(len, kept)) == len(own)
    if whole:
        apart = [[v for v in vs if v not in has] for vs, has in zip(values, kept, strict=True)]
        said = (f"{a}={' or '.join(_few(vs))}" for a, vs in zip(options, apart, strict=True) if vs)
        return " or ".join(said)
    shown = [place for place, vs in enumerate(values) if vs[1:]]
    points = both[len(own) :]
    told = [" ".join(f"{options[i]}={plots.short(point[i])}" for i in shown) for point in points]
    return " and ".join([*told[:FEW], *[f"{len(told) - FEW} more"] * (len(told) > FEW)])


def _few(values: list[str]) -> list[str]:
    more = [f"{len(values) - FEW} more"] * (len(values) > FEW)
    return [*map(plots.short, values[:FEW]), *more]
