"""Points that were damaged on purpose: whether that was noticed. None of them is to be chosen."""

from typing import Any

from harness import machine
from harness.report.picture import plots
from harness.report.sweep import earlier

AXIS = "fault"
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
    refused = [row for row in harmed if row["verdict"] == "refused"]
    failed = [row for row in harmed if row["verdict"] == "failed"]
    rest = [row for row in harmed if row["verdict"] not in ("refused", "failed")]
    worse = [row for row in rest if int(row.get("exit_code") or 0)]
    passed = [row for row in rest if row not in worse]
    words = " or ".join(dict.fromkeys(map(_word, worse)))
    told = [
        (refused, "refused"),
        (worse, f"worse than required ({words})"),
        (failed, "came to no end"),
        (passed, f"passed as required: {_named(passed, axes)}"),
    ]
    said = ", ".join(f"{len(some)} {what}" for some, what in told if some)
    sound = [row for row in rows if only(axes) and not _harmed(row)]
    beside = "".join(f" Without damage: {_word(row)}." for row in sound)
    return f"Of {machine.many(len(harmed), 'point')} damaged on purpose: {said}.{beside}"


def _harmed(row: Row) -> bool:
    return str(row.get(AXIS) or "none") != "none"


def _word(row: Row) -> str:
    return str(row.get("outcome") or row["verdict"])


def _named(rows: list[Row], axes: list[str]) -> str:
    named = [" ".join(f"{axis}={plots.short(row[axis])}" for axis in axes) for row in rows[:FEW]]
    return "; ".join(named) + f"; {len(rows) - FEW} more" * (len(rows) > FEW)
