"""Evaluations that differ in nothing but a seed, read as one: what every cell answers over all of their prompts."""

from pathlib import Path
from typing import Any

from harness.report.evaluate import intervals
from harness.report.evaluate.page import percent
from harness.report.html import section
from harness.report.picture import plots
from harness.report.sweep import cells
from harness.report.sweep.variation import group, is_seed
from harness.snapshot.cells import RIGHT, name
from harness.snapshot.result import CELL

MOST = 4  # pictures
TITLE = "Over the seeds"
TEXT = (
    "Right answers of every cell over {}: of all prompts, and the share under the seed that has the fewest and the most. "
    "In the picture a mark is the share of all, its bar reaches from the fewest to the most, and the dashed line is the "
    "full cache."
)

Row = dict[str, Any]


def sections(folder: Path, points: list[Row], axes: list[str]) -> list[Row]:
    """One block where a seed was varied and moves what evaluations answer: a line for each cell, a picture for each of
    a few other options. points: of the sweep in `folder`, one row each."""
    seeds, others = list(filter(is_seed, axes)), [a for a in axes if not is_seed(a)]
    tables = cells.evaluations(folder, points)
    groups = group([p for p in points if p["point"] in tables], others)
    if not seeds or not groups or not all(some[1:] for some in groups.values()):
        return []
    if cells.unmoved(folder, points, seeds):  # each counts once
        return []
    asked = len({row["asked"] for rows in tables.values() for row in rows}) > 1
    lines: list[list[Any]] = []
    panels: list[str] = []
    for values, some in groups.items():
        rows = _pooled([tables[p["point"]] for p in some])
        for row in rows:
            line = [*map(plots.short, values), name(row), *[row["asked"]] * asked]
            share = [percent(row[end]) for end in ("value", "low", "high")]
            lines.append([*line, f"{row['right']} of {row['n']}", *share, round(row["kv_bytes"] / 1024, 1)])  # fmt: skip
        panels += [intervals.panel(rows, RIGHT, when) for when in dict.fromkeys(r["asked"] for r in rows)]  # fmt: skip
    heads = [*others, "cell", *["asked"] * asked, "right", "right, %", "fewest, %", "most, %", "KiB"]  # fmt: skip
    shown = panels if len(panels) <= MOST else []
    text = TEXT.format(" and ".join(seeds))
    text = text if shown else text.partition(" In the picture")[0]
    return [section(TITLE, text=text, panels=shown, columns=heads, rows=lines)]


def _pooled(tables: list[list[Row]]) -> list[Row]:
    """A row for each cell that all of these evaluations have, as of one: its `value` of all prompts, `low` and `high` the
    fewest and the most of one."""
    each = [
        {tuple(r[k] for k in CELL): r for r in rows if r["measure"] == RIGHT} for rows in tables
    ]
    made = []
    for place, first in each[0].items():
        if all(place in rows for rows in each):
            mine = [rows[place] for rows in each]
            right = sum(round(row["value"] * row["n"]) for row in mine)
            shares, asked = [row["value"] for row in mine], sum(row["n"] for row in mine)
            low, high = min(shares), max(shares)
            share = min(max(right / asked, low), high)  # but for the last digit it is between them
            size = sum(row["kv_bytes"] for row in mine) / len(mine)
            made.append(first | {"right": right, "n": asked, "value": share, "low": low, "high": high,
                                 "kv_bytes": size})  # fmt: skip
    return made
