"""Points that were damaged on purpose: whether that was noticed. None of them is to be chosen."""

from typing import Any

from harness import machine
from harness.report.sweep import earlier
from harness.report.sweep.verdicts import called, word
from harness.snapshot.result import GOOD, tallied

AXIS = "fault"
FEW = 3  # points that are named one by one

Row = dict[str, Any]


def varied(axes: list[str]) -> bool:
    """Whether damage was varied, and so nothing is to be chosen."""
    return AXIS in axes and earlier.told()


def sentence(rows: list[Row], axes: list[str]) -> str:
    """How many were damaged and whether that was noticed, and what became of the others; empty where damage was not
    varied."""
    every = [row for row in rows if varied(axes) and _harmed(row)]
    harmed = [row for row in every if row["verdict"] != "failed"]
    idle = f"{machine.many(len(every) - len(harmed), 'damaged point')} came to no end"
    if not harmed:
        return f"Nothing was damaged: {idle}." if every else ""
    noticed = list(filter(_noticed, harmed))
    missed = [row for row in harmed if row not in noticed]
    many = "all noticed" if not missed else f"{len(noticed) or 'none'} noticed"
    said = f"Damaged on purpose: {machine.many(len(harmed), 'point')}, {many}"
    said += f" ({_tally(noticed)})" * bool(noticed)
    said += f", {len(missed)} not: {_named(missed, axes)}" * bool(missed)
    if free := [row for row in noticed if not int(row.get("exit_code") or 0)]:
        which = "all of them" if len(free) == len(noticed) else f"{len(free)} of them"
        said += f"; what is required here lets {which} through"
    said += f"; {idle}" * (len(harmed) < len(every))
    sound = [row for row in rows if not _harmed(row)]
    return f"{said}.{f' Without damage: {_tally(sound)}.' * bool(sound)}"


def _tally(rows: list[Row]) -> str:
    """`2 refused, 1 drifted`."""
    tally = tallied((word(row), not int(row.get("exit_code") or 0)) for row in rows)
    return ", ".join(
        f"{count} {'came to no end' if w == 'failed' else w}" for w, count in tally.items()
    )


def _harmed(row: Row) -> bool:
    return str(row.get(AXIS) or "none") != "none"


def _noticed(row: Row) -> bool:
    """Whether it was refused or told; of a pruned or quantized state, which has other logits anyway, as of its restore."""
    return row["verdict"] == "refused" or str(row.get("restore") or row["verdict"]) not in GOOD


def _named(rows: list[Row], axes: list[str]) -> str:
    return "; ".join(called(row, axes) for row in rows[:FEW]) + f"; {len(rows) - FEW} more" * (
        len(rows) > FEW
    )
