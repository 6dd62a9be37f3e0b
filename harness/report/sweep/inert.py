"""A sweep over seeds that draw nothing: greedy sampling takes the most likely token whatever the seed is."""

from collections.abc import Iterable, Mapping
from typing import Any

from harness.report.sweep import baseline, choice, pruned
from harness.report.sweep.variation import group, varied
from harness.report.sweep.verdicts import STOPPED

DRAWS = "The seed draws nothing with sampling=greedy."
MEASURED = ("verdict", "kl_mean", "max_abs_diff", "top1_agreement")  # the same for each seed then

Row = dict[str, Any]


def inert(rows: list[Row], axes: list[str]) -> bool:
    """Whether `seed` was varied and draws nothing: greedy, and every figure the same for each of its values."""
    main = all(r.get("task") == "experiment" and r.get("sampling") == "greedy" for r in rows)
    if "seed" not in axes or not main or any(r["verdict"] in STOPPED for r in rows):
        return False
    groups = group(rows, [a for a in axes if a != "seed"]).values()
    return all(len({tuple(r.get(k) for k in MEASURED) for r in some}) == 1 for some in groups)


def once(rows: list[Row], ways: Iterable[str]) -> list[Row]:
    """The points of one seed, where it was varied beside other options and draws nothing: the others repeat them, and
    what is chosen must not hang on how often one was run. All points of another sweep.
    ways: objectives."""
    axes = varied(rows, ways)
    if not axes[1:] or not inert(rows, axes):
        return rows
    return [row for row in rows if row["seed"] == rows[0]["seed"]]


def spread(marks: Mapping[str, str], rows: list[Row], axes: list[str]) -> dict[str, str]:
    """The `marks` of points also on those that repeat them under another seed, which draws nothing."""
    if not axes[1:] or not inert(rows, axes):
        return dict(marks)
    others = [axis for axis in axes if axis != "seed"]
    known = {
        tuple(str(r[a]) for a in others): marks[r["point"]] for r in rows if r["point"] in marks
    }
    keys = {row["point"]: tuple(str(row[a]) for a in others) for row in rows}
    return {point: known[key] for point, key in keys.items() if key in known}


def counted(said: str, few: list[Row], rows: list[Row], axes: list[str]) -> str:
    """`said` of the points `few` that stand for all of them, with the numbers of all."""
    if len(few) == len(rows):
        return said
    beside = [baseline.tried(some, axes) for some in (few, rows)]
    came = [pruned.came(len(some)) for some in beside]
    short = [choice.short_of(some) for some in beside]
    each = [f"in {'it' if len(some) == 1 else 'each'}, as is allowed" for some in beside]
    for less, more in (came, short, each):
        for case in (str.lower, str.capitalize):
            said = said.replace(case(less), case(more), 1) if less else said
    return said


def sentence(rows: list[Row], axes: list[str]) -> str:
    """That it draws nothing, where it was varied all the same; empty of another sweep."""
    return DRAWS if rows[1:] and inert(rows, axes) else ""
