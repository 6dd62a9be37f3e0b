"""The points of a sweep that came to no end: what each was, why, and the command that runs it again."""

from pathlib import Path
from typing import Any

from harness.report import plots
from harness.report.badge import SIGNS
from harness.report.closing import of_point
from harness.report.html import cell, section
from harness.report.names import in_brief
from harness.report.verdicts import STOPPED, target

MOST = 20  # rows; so many alike say it all

Row = dict[str, Any]


def sections(folder: Path, rows: list[Row], axes: list[str]) -> list[Row]:
    """One block where a point failed or was refused; one row each."""
    points = [row for row in rows if row["verdict"] in STOPPED]
    if not points:
        return []
    table = [
        [
            cell(row["point"], target(row), "bad", SIGNS[row["verdict"]]),
            " ".join(f"{a}={plots.short(row[a])}" for a in axes),
            cell(in_brief(row["reason"]), kind="long"),
            cell(of_point(folder / row["point"]), kind="code"),
        ]
        for row in points[:MOST]
    ]
    more = f" The first {MOST} of {len(points)}." if len(points) > MOST else ""
    told = f"Such a point has no figures, so no picture shows it.{more}"
    columns = ["folder", "what it was", "why", "to run it again"]
    return [section("What failed", text=told, columns=columns, rows=table)]
