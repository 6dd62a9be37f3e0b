"""What the points of a sweep are tried beside: the full cache, and a control that keeps tokens at random."""

import re
from typing import Any

from harness.report.sweep.variation import group

REDUCERS = ("prune", "quantize")  # whose `none` keeps all of the cache
FREE = re.compile(
    r"; ([\w.]+(?: and [\w.]+)*) makes? no difference"
)  # of the points that are tried
CONTROL = "random"  # the policy of the control

Row = dict[str, Any]


def tried(rows: list[Row], axes: list[str]) -> list[Row]:
    """The points to choose among: where others are tried beside it, without the full cache itself, to which
    nothing is nearer."""
    groups = [axis for axis in REDUCERS if axis in axes]
    others = [row for row in rows if any(row[axis] != "none" for axis in groups)]
    return others or rows


def policies(rows: list[Row], axes: list[str]) -> list[Row]:
    """Those of the points that are no control, where others are."""
    return [row for row in rows if "prune" in axes and row["prune"] != CONTROL] or rows


def _alike(rows: list[Row], others: list[str]) -> bool:
    """Whether rows that agree in the options `others` came to the same."""
    return all(len({row["verdict"] for row in some}) == 1 for some in group(rows, others).values())


def beside_full(said: str, rows: list[Row], axes: list[str]) -> str:
    """`said` of the points that are `tried`, in a sentence that names what they are tried beside."""
    groups = [axis for axis in REDUCERS if axis in axes]
    whole = [row for row in rows if groups and all(row[axis] == "none" for axis in groups)]
    if not said or len(whole) in (0, len(rows)):
        return said
    full = " ".join(f"{axis}=none" for axis in groups)
    if (free := FREE.search(said)) and not all(
        _alike(whole, [a for a in axes if a != axis]) for axis in free[1].split(" and ")
    ):
        said = said.replace(free[0], f"{free[0]} to these points")
    head, near, rest = said.partition(" to the full cache (")
    said = f"{head} to it ({rest}" if near and head.startswith("Nearest") else said
    return f"Beside {full}, the full cache: {said[0].lower()}{said[1:]}"
