"""Points of a sweep that are within rounding: where it decides a near tie, and that none is better than another."""

import re
from typing import Any

from harness import machine
from harness.report.sweep.variation import FROM_1
from harness.report.sweep.verdicts import STOPPED, called
from harness.report.sweep.which import FEW
from harness.snapshot.result import GOOD

DECIDES = "which rounding decides"
NEAR = re.compile(rf"; a near tie at step \d+, {DECIDES}")  # which older versions did not say

Row = dict[str, Any]


def tied(row: Row) -> bool:
    """Whether another token is the most likely one at some step, and rounding explains it."""
    return row["verdict"] == "equivalent" and row.get(FROM_1) is not None


def reason(row: Row) -> str:
    """Why a point has its verdict, and where it has such a near tie."""
    near = f"; a near tie at step {row[FROM_1]}, {DECIDES}" if tied(row) else ""
    return f"{row['reason'] or ''}{near}"


def near_ties(rows: list[Row], axes: list[str]) -> str:
    """Which points have one and at which step, in a sentence; empty where none has."""
    some = list(filter(tied, rows))
    told = [f"{called(row, axes)} (step {row[FROM_1]})" for row in some[:FEW]]
    more = f" and {len(some) - FEW} more" * (len(some) > FEW)
    said = f"Equivalent but for a near tie, {DECIDES}: {', '.join(told)}{more}."
    return said if some else ""


def alike(rows: list[Row], axes: list[str]) -> str:
    """That all points which ran are within rounding, and which came to no end, in a sentence; empty of other sweeps."""
    ran = [row for row in rows if row["verdict"] not in STOPPED]
    lost = [row for row in rows if row["verdict"] in STOPPED]
    if not lost or not ran[1:] or any(row["verdict"] not in GOOD for row in ran):
        return ""
    named = [called(row, axes) for row in lost[:FEW]]
    named += [f"{len(lost) - FEW} more"] * (len(lost) > FEW)
    words = " or ".join(sorted({row["verdict"] for row in lost}))
    many = machine.many(len(rows), "point")
    return f"All of {many} but {len(lost)} are within rounding; {words}: {', '.join(named)}."
