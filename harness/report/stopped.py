"""The points of a sweep that came to no end: what each was, why, and the command that runs it again."""

from pathlib import Path
from typing import Any

from harness.config.launched import of_point
from harness.report import plots
from harness.report.badge import SIGNS
from harness.report.failure import nearby
from harness.report.html import cell, section
from harness.report.names import in_brief
from harness.report.summary import again
from harness.report.verdicts import STOPPED, target

MOST = 20  # rows; so many alike say it all

Row = dict[str, Any]


def sections(folder: Path, rows: list[Row], axes: list[str], left: int = 0) -> list[Row]:
    """One block where a point failed or was refused, one row each, and how to go on where something failed. left:
    points that have not run, with which that is said already."""
    points = [row for row in rows if row["verdict"] in STOPPED]
    if not points:
        return []
    table = [
        [
            cell(row["point"], target(row), "bad", SIGNS[row["verdict"]]),
            " ".join(f"{a}={plots.short(row[a])}" for a in axes),
            cell(
                in_brief(nearby(str(row["reason"]), folder / row["point"])),
                kind="long",
            ),
            cell(of_point(folder / row["point"]), kind="code"),
        ]
        for row in points[:MOST]
    ]
    more = f" The first {MOST} of {len(points)}." if len(points) > MOST else ""
    told = f"Such a point has no figures, so no picture shows it.{more}"
    columns = ["folder", "what it was", "why", "to run it again"]
    made = [section("What failed", text=told, columns=columns, rows=table)]
    if not left and any(row["verdict"] == "failed" for row in points):
        told = "This runs again what failed, once its cause is mended, and nothing that is done:"
        made.append(section("Go on", text=told, pre=again(folder)))
    return made
