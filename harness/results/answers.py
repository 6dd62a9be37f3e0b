"""Evaluations that are points of a sweep: the rows of `answers.csv`, and the cell that each point comes to."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.results.points import BYTES, CHOICE, KL, RIGHT, SAFE, Row, varied
from harness.results.sweep import ways_of
from harness.snapshot.cells import best, name, nearest
from harness.snapshot.objective import directions
from harness.snapshot.result import CELL, ROWS


def table(folder: Path, points: Sequence[Row]) -> list[Row]:
    """A row per point and cell, with what was swept, the cell and its figures; none where no point is an evaluation."""
    axes = varied(points, ways_of(folder, points))
    lines = []
    for point in points:
        cells: dict[tuple[Any, ...], dict[str, Row]] = {}
        for row in rows_of(folder / point["point"]):
            cells.setdefault(tuple(row[key] for key in CELL), {})[row["measure"]] = row
        for place, values in cells.items():
            first = next(iter(values.values()))
            line = {"point": point["point"], **{a: point[a] for a in axes if a not in CELL}}
            line |= {**dict(zip(CELL, place, strict=True)), "n": first["n"]}
            for measure, row in values.items():
                line |= {
                    measure: row["value"],
                    f"{measure}_low": row["low"],
                    f"{measure}_high": row["high"],
                }
            lines.append(line | {key: first[key] for key in ("kv_bytes", "per_token_s")})
    return lines


def completed(folder: Path, points: Sequence[Row]) -> list[Row]:
    """`points` with the `cell` that each evaluation comes to (its smallest safe choice, else the nearest), whether it is
    safe, and its figures; as they are where a search has said what it looks for, or none is an evaluation."""
    if directions(folder):
        return list(points)
    found = [{**row, **_cell(folder / str(row["point"]))} for row in points]
    return found if any(CHOICE in row for row in found) else list(points)


def rows_of(point: Path) -> list[Row]:
    """The rows of the evaluation in the folder of a point; none where it is none."""
    file = point / ROWS
    return json.loads(file.read_text("utf-8")) if file.is_file() else []


def _cell(point: Path) -> Row:
    """What an evaluation comes to, no cell where its prompts cannot tell or the full cache is alone; nothing where it is
    no evaluation."""
    try:
        rows = rows_of(point)
        safe = best(rows)
        one = safe or nearest(rows)
    except (OSError, ValueError, KeyError, StopIteration):
        return {}
    if one is None:
        return {CHOICE: ""}
    figures = {r["measure"]: r["value"] for r in rows if all(r[k] == one[k] for k in CELL)}
    return {
        CHOICE: name(one),
        SAFE: safe is not None,
        RIGHT: one["value"],
        BYTES: one["kv_bytes"],
        KL: figures.get("kl"),
    }
