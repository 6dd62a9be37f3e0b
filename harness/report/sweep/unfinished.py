"""The points of a sweep that came to no end: what each was, why, and the command that runs it again."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.config.launched import of_point
from harness.report.badge import SIGNS
from harness.report.failure import why
from harness.report.html import cell, section
from harness.report.names import folder as called
from harness.report.picture import plots
from harness.report.sweep.summary import again
from harness.report.sweep.verdicts import STOPPED, target
from harness.snapshot.record import read

MOST = 20  # rows; so many alike say it all
FEW = 6  # rows that come before the verdicts
VARIES = re.compile(
    r"\d+\.\d+(?:e[+-]\d+)?|\d+e[+-]\d+|(?<=up to )\d+|(?<=off by )\d+|(?=[\w-]*\d)[\w-]{8,}"
)

Row = dict[str, Any]


def diagnosed(folder: Path, rows: list[Row], key: str = "reason") -> list[Row]:
    """`rows` of the sweep in `folder`, those that came to no end with their diagnosis under `key`, whole: what does
    not fit and what that means, as the page of each begins; without paths. WHY keeps the reason beside it."""
    return [
        {**row, key: why(folder / row["point"], row)} if row["verdict"] in STOPPED else row
        for row in rows
    ]


def title(rows: list[Row]) -> str:
    """What the block is called that tells of these points."""
    ended = {row["verdict"] for row in rows if row["verdict"] in STOPPED}
    return "What was refused" if ended == {"refused"} else "What failed"


def many(rows: list[Row]) -> bool:
    """Whether there are so many that the verdicts come before them."""
    return sum(row["verdict"] in STOPPED for row in rows) > FEW


def _told(row: Row, first: dict[str, str]) -> str:
    """Why a point came to no end, or which one, told before it, did for the same reason. first: reason -> point."""
    one = first[_alike(row)]
    return str(row["reason"]) if one == row["point"] else f"as {called(one)}"


def _alike(row: Row) -> str:
    """Its reason without measures, digests and the names of files, in which points that failed alike may differ."""
    return VARIES.sub("#", str(row["reason"]))


def idle(folder: Path, rows: list[Row]) -> int:
    """How many points of the sweep in `folder` failed before any work began."""
    return sum(row["verdict"] == "failed" and _unbegun(folder / row["point"]) for row in rows)


def _unbegun(point: Path) -> bool:
    with suppress(OSError, ValueError):
        return read(point / "result.json").get("stages") == []
    return False


def sections(folder: Path, rows: list[Row], axes: list[str], left: int = 0) -> list[Row]:
    """One block where a point failed or was refused, one row each, and how to go on where something failed. left:
    points that have not run, with which that is said already."""
    points = [row for row in rows if row["verdict"] in STOPPED]
    if not points:
        return []
    first: dict[str, str] = {}
    for row in points:
        first.setdefault(_alike(row), row["point"])
    table = [
        [
            cell(row["point"], target(row), "bad", SIGNS[row["verdict"]]),
            " ".join(f"{a}={plots.short(row[a])}" for a in axes),
            cell(_told(row, first), kind="long"),
            cell(of_point(folder / row["point"]), kind="code"),
        ]
        for row in points[:MOST]
    ]
    more = f" The first {MOST} of {len(points)}." if len(points) > MOST else ""
    told = f"Such a point has no figures, so no picture shows it.{more}"
    columns = ["folder", "what it was", "why", "to run it again"]
    made = [section(title(points), text=told, columns=columns, rows=table)]
    if not left and any(row["verdict"] == "failed" for row in points):
        told = "This runs again what failed, once its cause is mended, and nothing that is done:"
        made.append(section("Go on", text=told, pre=again(folder)))
    return made
