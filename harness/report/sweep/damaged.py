"""Points that were damaged on purpose: whether that was noticed. None of them is to be chosen."""

from typing import Any

from harness import machine
from harness.report.picture import plots
from harness.report.sweep import earlier
from harness.snapshot.result import GOOD, tallied

AXIS = "fault"
STOPPED = ("refused", "failed")
FEW = 3  # points that are named one by one

Row = dict[str, Any]


def whole(rows: list[Row], axes: list[str]) -> list[Row]:
    """The points without damage, where others of the same sweep have it and something else was varied too; else all."""
    if AXIS not in axes or not axes[1:] or not earlier.told():
        return rows
    return [row for row in rows if not _harmed(row)] or rows


def only(axes: list[str]) -> bool:
    """Whether nothing but the damage was varied, and so nothing is to be chosen."""
    return axes == [AXIS] and earlier.told()


def sentence(rows: list[Row], axes: list[str]) -> str:
    """How many there are and what became of them, in a sentence; empty where the damage was not varied."""
    harmed = [row for row in rows if AXIS in axes and _harmed(row)]
    if not harmed or not earlier.told():
        return ""
    ended = list(filter(_noticed, harmed))
    tally = tallied((_word(row), not int(row.get("exit_code") or 0)) for row in ended)
    told = [
        f"{count} {'came to no end' if said == 'failed' else said}" for said, count in tally.items()
    ]
    free = [row for row in ended if not int(row.get("exit_code") or 0)]
    allowed = f", {f'{len(free)} of them ' * (len(free) < len(ended))}as is allowed here"
    noticed = ", ".join(told) + allowed * bool(free)
    if passed := [row for row in harmed if row not in ended]:
        unseen = f"{len(passed)} not noticed ({_named(passed, axes)})"
        noticed = f"{noticed}; {unseen}" if noticed else unseen
    sound = [row for row in rows if only(axes) and not _harmed(row)]
    beside = "".join(f" Without damage: {_word(row)}." for row in sound)
    return f"Of {machine.many(len(harmed), 'point')} damaged on purpose: {noticed}.{beside}"


def _harmed(row: Row) -> bool:
    return str(row.get(AXIS) or "none") != "none"


def _noticed(row: Row) -> bool:
    """Whether it was refused or told; of a pruned or quantized state, which has other logits anyway, as of its restore."""
    return row["verdict"] in STOPPED or str(row.get("restore") or row["verdict"]) not in GOOD


def _word(row: Row) -> str:
    return str(row.get("outcome") or row["verdict"])


def _named(rows: list[Row], axes: list[str]) -> str:
    named = [" ".join(f"{axis}={plots.short(row[axis])}" for axis in axes) for row in rows[:FEW]]
    return "; ".join(named) + f"; {len(rows) - FEW} more" * (len(rows) > FEW)
