"""A sweep of evaluations that have several cells each: what every cell answered, point by point, and the one to
choose."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from harness import machine
from harness.report.evaluate import choice
from harness.report.evaluate import page as evaluate
from harness.report.html import cell, section
from harness.report.picture import plots
from harness.report.sweep.variation import group, varied
from harness.snapshot.cells import best, full, is_full, name, tells
from harness.snapshot.objective import ANSWERS
from harness.snapshot.result import CELL, ROWS

MEANT = ("right, %", "95%", "KL", "KiB")  # of each point
ANSWER, LONG = next(iter(ANSWERS)), 200  # lines that are shown at once
NONE = "none but the full cache"
FEW = 3  # points that are told by their folders

Row = dict[str, Any]


def sections(folder: Path, points: list[Row], axes: list[str]) -> list[Row]:
    """One block with each cell, point by point, that of each point's choice marked. points: of the sweep in
    `folder`, one row each. Nothing where a figure of each says it all."""
    tables = evaluations(folder, points)
    asked = len({row["asked"] for rows in tables.values() for row in rows}) > 1
    made: dict[tuple[Any, ...], list[list[Any]]] = {}
    for point in points:
        rows = tables.get(point["point"], [])
        winner = _winner(rows)
        for row in evaluate.shown(rows):
            first, when = evaluate.marked([row["cell"], row["asked"]], winner)
            there = cell(point["point"], f"{point['point']}/report.html")
            line = [first, *[when] * asked, there, *(plots.short(point[a]) for a in axes)]
            made.setdefault((row["cell"], when), []).append([*line, *(row[c] for c in MEANT)])
    if not made:
        return []
    heads = ["cell", *["asked"] * asked, "folder", *axes]
    heads += [evaluate.HEADS[evaluate.COLUMNS.index(c)] for c in MEANT]
    lines = [line for some in made.values() for line in some]
    text = (
        "Each cell under every option, one below the other. Best: of its point, the smallest safe choice; "
        f"{choice.SAFE}."
    )
    text += "".join(f" {said}" for said in unmoved(folder, points, axes))
    title = "What each point answered"
    return [section(title, text=text, columns=heads, rows=lines, fold=len(lines) > LONG)]


def conclusion(folder: Path, points: list[Row]) -> str:
    """Which cell to choose, in a sentence: the smallest that keeps what the full cache answers, in
    how many points. Empty where `sections` are."""
    known = evaluations(folder, points)
    if not known:
        return ""
    tables = [*filter(tells, known.values())]
    if not tables:
        return (
            "These prompts cannot tell: in no point does the full cache itself answer half of them."
        )
    winners = [*map(_winner, tables)]
    most = Counter(name(w) if w else NONE for w in winners).most_common()
    many = machine.many(len(known), "point")
    said = ", ".join(f"{cell} in {count}" for cell, count in most) + f" of {many}"
    if len(tables) == len(known) and not most[1:]:
        said = f"{most[0][0]} in {'each of ' * (len(tables) > 1)}{many}"
    far = choice.reach([*filter(None, winners)])
    axes = varied(points)
    mute = [p for p in points if (rows := known.get(p["point"])) and not tells(rows)]
    told = [f"{choice.CHOICE}{far}: {said}."]
    if mute:
        where = _where(mute, points, axes)
        told.append(
            f"The prompts of {where} cannot tell: the full cache itself fails most of them."
        )
    told.append(
        f"The full cache answers {_spread([*map(full, tables)])}{' elsewhere' * bool(mute)}."
    )
    return " ".join([*told, *unmoved(folder, points, axes)])


def _where(some: list[Row], points: list[Row], axes: list[str]) -> str:
    """Which points these are: by the values of one option that are theirs alone, else by their folders."""
    for axis in axes:
        theirs = dict.fromkeys(str(p[axis]) for p in some)
        if sum(str(p[axis]) in theirs for p in points) == len(some) and len(theirs) <= FEW:
            return f"{axis}={' or '.join(map(plots.short, theirs))}"
    named = ", ".join(f".../{p['point']}" for p in some[:FEW])
    return named + f" and {len(some) - FEW} more" * (len(some) > FEW)


def alone(folder: Path, points: list[Row]) -> str:
    """What points are of which one figure says it all, in a sentence: the one cell that each tried, where it is the
    same in all, and what the full cache answers beside it. Empty of others."""
    tables = [_read(folder, point) for point in points if point.get(ANSWER) is not None]
    tables = [rows for rows in tables if rows]
    if not tables:
        return ""
    tried = {name(row) for rows in tables for row in rows if not is_full(row)}
    said = f"; each point is {tried.pop()}" if len(tried) == 1 else ""
    return f"The full cache answers {_spread(list(map(full, tables)))}{said}."


def _spread(whole: list[Row]) -> str:
    """The shares of right answers of these rows, from the smallest to the largest."""
    low, high = (of(row["value"] for row in whole) for of in (min, max))
    return f"{low:.0%}" + f" to {high:.0%}" * (low < high)


def unmoved(folder: Path, points: list[Row], axes: list[str]) -> list[str]:
    """A sentence for each option that was swept and changes nothing of what is measured; of a time only noise
    would say so, so it is not asked."""
    tables = {p["point"]: _told(rows) for p in points if (rows := _read(folder, p))}
    said = []
    for axis in axes:
        others = [a for a in axes if a != axis]
        alike = group([p for p in points if p["point"] in tables], others).values()
        same = all(len({tables[p["point"]] for p in some}) == 1 for some in alike)
        if same and any(some[1:] for some in alike):
            said.append(
                f"In no cell does {axis} change anything that is measured: such points count once."
            )
    return said


def table(folder: Path, points: list[Row], axes: list[str]) -> list[Row]:
    """What `answers.csv` holds: a row per point and cell, with what was swept, the cell, and its figures. Empty
    where no point is an evaluation."""
    made = []
    for point in points:
        for place, values in evaluate.cells(_read(folder, point)).items():
            first = next(iter(values.values()))
            swept = {a: point[a] for a in axes if a not in CELL}
            row = {
                "point": point["point"],
                **swept,
                **dict(zip(CELL, place, strict=True)),
                "n": first["n"],
            }
            for measure, r in values.items():
                row |= {
                    measure: r["value"],
                    f"{measure}_low": r["low"],
                    f"{measure}_high": r["high"],
                }
            made.append(row | {key: first[key] for key in ("kv_bytes", "per_token_s")})
    return made


def _told(rows: list[Row]) -> tuple[Any, ...]:
    """What was measured, without times; the last digits are another order of the same sums."""
    figures = ("value", "low", "high", "kv_bytes")
    return tuple(
        (
            *(r[k] for k in (*CELL, "measure")),
            *(None if r[k] is None else f"{r[k]:.6g}" for k in figures),
        )
        for r in rows
    )


def _read(folder: Path, point: Row) -> list[Row]:
    """The rows of the evaluation of a point; none where it is none."""
    place = folder / point["point"] / ROWS
    return json.loads(place.read_text("utf-8")) if place.is_file() else []


def intervals(folder: Path, points: list[Row]) -> dict[str, str]:
    """The 95% interval of the share of right answers of each point of `folder` that has one such figure, by
    its name: `86-100%`."""
    known = {}
    for point in (p for p in points if p.get(ANSWER) is not None):
        for row in (r for r in _read(folder, point) if r["measure"] == "contains"):
            known[point["point"]] = f"{evaluate.interval(row)}%"  # the last is its cell
    return known


def evaluations(folder: Path, points: list[Row]) -> dict[str, list[Row]]:
    """The rows of each evaluation by its point; none where a figure of each says it all."""
    shown = [] if points and ANSWER in points[0] else points
    return {p["point"]: rows for p in shown if (rows := _read(folder, p))}


def _winner(rows: list[Row]) -> Row | None:
    return best(rows) if rows else None
