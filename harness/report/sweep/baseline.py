"""What the points of a sweep are tried beside: the full cache, and a control that keeps tokens at random."""

import re
from typing import Any

from harness.report.sweep.variation import asks, group

REDUCERS = ("prune", "quantize")  # whose `none` keeps all of the cache
FREE = re.compile(
    r"; ([\w.]+(?: and [\w.]+)*) makes? no difference"
)  # of the points that are tried
CONTROL = "random"  # the policy of the control

Row = dict[str, Any]


def tried(rows: list[Row], axes: list[str]) -> list[Row]:
    """The points to choose among: where others are tried beside it, without the full cache itself, to which
    nothing is nearer."""
    full = {row["point"] for row in whole(rows, axes)}
    return [row for row in rows if row["point"] not in full] or rows


def whole(rows: list[Row], axes: list[str]) -> list[Row]:
    """The points that are the full cache, where how it is reduced was varied: without policy and quantizer, or with a
    budget that left every token, whatever was asked. Where none is, those without what was varied."""
    options = group(rows, [axis for axis in axes if not asks(axis)]) if _reducing(axes) else {}
    full = [row for some in options.values() if all(map(_full, some)) for row in some]
    return full or [row for row in rows if _without(row, axes)]


def _full(row: Row) -> bool:
    exact = str(row.get("quantize") or "none") == "none"
    return exact and (str(row.get("prune") or "none") == "none" or idle(row))


def idle(row: Row) -> bool:
    """Whether a policy let go of nothing, in any layer or head."""
    every = row.get("kept_tokens") is not None and row["kept_tokens"] == row.get("tokens")
    return bool(every and row.get("prune", "none") != "none" and not row.get("pruned"))


def _without(row: Row, axes: list[str]) -> bool:
    groups = [axis for axis in REDUCERS if axis in axes]
    return bool(groups) and all(row[axis] == "none" for axis in groups)


def _reducing(axes: list[str]) -> list[str]:
    return [axis for axis in axes if axis.partition(".")[0] in REDUCERS]


def _called(full: list[Row], axes: list[str]) -> str:
    """What the points of the full cache have in common."""
    if any(_without(row, axes) for row in full):
        return " ".join(f"{axis}=none" for axis in REDUCERS if axis in axes)
    alike = [axis for axis in _reducing(axes) if len({str(row[axis]) for row in full}) == 1]
    return " ".join(f"{axis}={full[0][axis]}" for axis in alike) or "what kept every token"


def policies(rows: list[Row], axes: list[str]) -> list[Row]:
    """Those of the points that are no control, where others are."""
    return [row for row in rows if "prune" in axes and row["prune"] != CONTROL] or rows


def _alike(rows: list[Row], others: list[str]) -> bool:
    """Whether rows that agree in the options `others` came to the same."""
    return all(len({row["verdict"] for row in some}) == 1 for some in group(rows, others).values())


def beside_full(said: str, rows: list[Row], axes: list[str]) -> str:
    """`said` of the points that are `tried`, in a sentence that names what they are tried beside."""
    full = whole(rows, axes)
    if not said or len(full) in (0, len(rows)):
        return said
    if (free := FREE.search(said)) and not all(
        _alike(full, [a for a in axes if a != axis]) for axis in free[1].split(" and ")
    ):
        said = said.replace(free[0], f"{free[0]} to these points")
    head, near, rest = said.partition(" to the full cache (")
    it = ", the full cache" * all(map(_full, full))  # else the rest of them is pruned, or quantized
    said = f"{head} to it ({rest}" if it and near and head.startswith("Nearest") else said
    return f"Beside {_called(full, axes)}{it}: {said[0].lower()}{said[1:]}"
