"""`sweep.csv` and `sweep.html`: one row per point, the verdicts, size, speed, divergence. The table for
programs holds the values of `result.json` as they are: steps count from 0 there."""

import csv
import io
import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from harness.config import draws, launched
from harness.config.literal import decoded
from harness.present.messages import worded
from harness.report.footer import constant, noted, of_sweep, swept
from harness.report.html import page, section
from harness.report.names import folder as called
from harness.report.sweep import cells as answers
from harness.report.sweep import (
    evaluated,
    heading,
    inert,
    panels,
    pooled,
    pruned,
    rounding,
    search,
    seeds,
    texts,
    unfinished,
)
from harness.report.sweep import points as table
from harness.report.sweep import verdicts as grid
from harness.report.sweep.summary import again, counted, pending, searched
from harness.report.sweep.summary import winners as marked
from harness.report.sweep.variation import FROM_1, SECONDS, varied
from harness.report.sweep.verdicts import word
from harness.snapshot.objective import answered, directions, figures, searches
from harness.snapshot.record import AUDITED
from harness.snapshot.result import DONE, METRICS, ROWS, SIZES, exit_code, outcome, write_text
from harness.snapshot.result import counted as step

TABLE, CELLS, PAGE, RECORD = "sweep.csv", "answers.csv", "sweep.html", "sweep.json"
FRONT = "optimization_results.yaml"  # which Optuna's sweeper writes
SOUGHT = "Best: by what the search was asked for."


def rows(points: list[Path]) -> list[dict[str, Any]]:
    """One flat row per finished point folder of one sweep, the same columns in each."""
    told = list(directions(points[0].parent)) if points else []
    told = told or answered(points)
    flat = [{**_row(p), **figures(p, told)} for p in points]
    for row in flat:
        row["reason"] = rounding.reason(row)
    pruned.completed(flat)
    columns = list(dict.fromkeys(key for row in flat for key in row))
    return [{key: row.get(key) for key in columns} for row in flat]


def _row(folder: Path) -> dict[str, Any]:
    result = json.loads((folder / "result.json").read_text("utf-8"))
    overrides = launched.typed(folder) or []
    size = result.get("size") or {}  # all zero: of a task that stores nothing
    typed = dict(decoded(o).lstrip("+~").partition("=")[::2] for o in overrides)
    return {
        "point": folder.name,
        "verdict": result["verdict"],
        "outcome": outcome(result) or DONE,
        "exit_code": exit_code(result),
        "reason": worded(result["reason"]),
        **pruned.came_back(result),
        **(result.get("options") or {}),
        **{k: v for k, v in typed.items() if k not in (result.get("options") or {})},
        **{k: (result.get("metrics") or {}).get(k) for k in METRICS},
        **_from_1(result.get("metrics") or {}),
        **draws.figures(result),
        **_answer(result.get("text") or {}),
        "error_ratio": (result.get("oracle") or {}).get("ratio"),
        "noise_kl_max": (result.get("noise_floor") or {}).get("kl_max"),
        "mutated": (result.get("mutation") or {}).get("mutated"),
        "bytes_copied_per_token": (result.get("mutation") or {}).get("bytes_copied_per_token"),
        **dict.fromkeys(SIZES),
        **{k: size[k] for k in SIZES if k in size and any(size.values())},
        **{k: (result.get("time_s") or {}).get(k.removesuffix("_s")) for k in SECONDS},
        "snapshot_id": (result.get("snapshot") or {}).get("id"),
        "mlflow_run_id": (result.get("mlflow") or {}).get("run_id"),
        "folder": result.get("folder", str(folder)),
    }


def _from_1(measured: dict[str, Any]) -> dict[str, Any]:
    """The first other token as `reason` counts it, beside the record's own figure, which counts from 0."""
    key = "first_divergence"
    return {FROM_1: None if measured.get(key) is None else step(key, measured[key])}


def _answer(text: dict[str, Any]) -> dict[str, str]:
    """Whether the restored run gave the expected answer; no column where none was expected."""
    return {"answer": "right" if text["restored_right"] else "wrong"} if "expected" in text else {}


def read_csv(folder: Path, table: str = TABLE) -> list[dict[str, str]]:
    """The rows of a table of the sweep in `folder`, as text. Raises OSError."""
    with (folder / table).open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def as_text(points: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`rows` as they read back from a CSV file."""
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in points]


def cells(folder: Path, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `answers.csv`: one per point and cell; none where no point is an evaluation."""
    return answers.table(folder, points, varied(points, search.ways(folder, points)))


def write(folder: Path, points: list[dict[str, Any]], total: int | None) -> None:
    """Both files, into the sweep's directory, and `answers.csv`, a row per cell, where points are evaluations:
    those compare no logits, so that a column which is empty in all of them is left out of their table."""
    kept = points
    if told := cells(folder, points):
        write_text(folder / CELLS, _csv(told))
        if {row.get("task") for row in points} == {"evaluate"}:
            keys = [k for k in points[0] if any(row[k] is not None for row in points)]
            kept = [{k: row[k] for k in keys} for row in points]
    write_text(folder / TABLE, _csv(kept))
    write_text(folder / PAGE, drawn(folder, points, total, folder.name))


def _csv(lines: list[dict[str, Any]]) -> str:
    """One line for each; a column for each key that one of them has."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(dict.fromkeys(key for line in lines for key in line)))
    writer.writeheader()
    writer.writerows(lines)
    return table.getvalue()


def drawn(folder: Path, points: list[dict[str, Any]], total: int | None, name: str) -> str:
    """The page of the sweep in `folder`, called `name`."""
    points = unfinished.diagnosed(folder, points)
    ways = search.ways(folder, points)
    axes = varied(points, ways)
    left = max((total or 0) - len(points), 0)
    told = f"{left} of {total} points have not run. This goes on with them, and runs none again that is done:"
    missing = [section("Missing", text=told, pre=again(folder))] * bool(left)
    best = search.ranked(points, ways)[:1]  # a search has said what it looks for
    first, one = marked(evaluated.completed(folder, points), ways)
    first = inert.spread(first, points, axes)
    alone, sure = searched(points, ways), answers.intervals(folder, points)
    why = unfinished.sections(folder, points, axes, left)
    glance = (
        []
        if alone or set(map(word, points)) == {DONE}
        else grid.sections(points, axes, first, SOUGHT if best else "")
    )
    late = bool(glance) and unfinished.many(points)
    sections = [
        *missing,
        *why * (not late),
        *search.sections(points, axes, ways, sure),
        *glance,
        *why * late,
        *(pooled.sections(folder, points, axes) or seeds.sections(points, axes)),
        *texts.sections(folder, points, axes),
        *answers.sections(folder, points, axes),
        *panels.sections(points, axes),
        *table.by_option(points, axes),
        table.every(points, axes, first, ways, alone) | {"lines": noted(folder)},
    ]
    if waiting := pending(folder, points):
        told = f"{', '.join(map(called, waiting))}. Upload them: {again(folder)}"
        sections.append(section("Not yet on the tracking server", text=told))
    mixed = _of_other_code(folder, points)
    if mixed:
        told = f"{', '.join(map(called, mixed))}: run by other code than the rest. Delete what is to run again "
        sections.append(section("Not of one code", text=f"{told}and resume: {again(folder)}"))
    sections += of_sweep(folder, one, _audit(points))
    verdict, reason, tone = heading.told(folder, points, axes, ways, total, len(mixed))
    return page(
        swept(points, axes, name, searches(folder)),
        sections,
        verdict,
        reason,
        tone,
        [(file, file) for file in _files(folder, points, left)],
        under=f"{name}{constant(folder, points, axes, name)}",
        pills=[] if left else pruned.pills(points, counted(points)),
    )


def _files(folder: Path, points: list[dict[str, Any]], left: int) -> list[str]:
    """What lies beside the page: its tables, its record, and of a search that is complete the front in full."""
    answered = [CELLS] * any((folder / row["point"] / ROWS).is_file() for row in points)
    return [TABLE, *answered, RECORD, *[FRONT] * bool(not left and searches(folder))]


def _audit(points: list[dict[str, Any]]) -> list[str]:
    """The command that audits the sweep, where all of its points are of tasks that can be."""
    folders = {str(Path(str(row["folder"])).parent) for row in points if row.get("folder")}
    if len(folders) != 1 or not all(row.get("task") in AUDITED for row in points):
        return []
    return [f"python -m harness task=audit {shlex.quote(f'run={folders.pop()}')}"]


def _of_other_code(folder: Path, points: list[dict[str, Any]]) -> list[str]:
    """The points that other code has run than most of them."""
    codes: dict[str, str] = {}
    for point in (row["point"] for row in points):
        try:
            result = json.loads((folder / point / "result.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if code := (result.get("environment") or {}).get("code"):
            codes[point] = code
    most = Counter(codes.values()).most_common(1)
    return [point for point, code in codes.items() if code != most[0][0]]
