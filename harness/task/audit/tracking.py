"""What a tracking server was told of a run, of its cells and of a sweep: derived again from their folders by
the functions that told it. Its facts are compared, and of its words only which outcome they claim."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import track
from harness.present import sweep as shown
from harness.report.evaluate import page as evaluate
from harness.results import answers, points
from harness.results.sweep import sweep_of
from harness.snapshot import record as records
from harness.snapshot.result import ROWS
from harness.task.audit.source import read
from harness.track import contents, description, names, parent, parts, remnant
from harness.track import metrics as measured
from harness.track.totals import first, summed, totals

Result = dict[str, Any]
Values = dict[str, dict[int, float]]  # by name and step


@dataclass(frozen=True)
class Told:
    """status: empty where the record does not say."""

    name: str
    word: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: Values
    status: str = ""


def run(folder: Path, result: Result) -> Told:
    """Of a single run or a point."""
    config = read(folder / records.NAME).get("config") or {}
    figures = [*measured.metrics(result), *measured.turns(folder)]
    return Told(
        names.of_run(result, folder, str(config.get("name"))),
        contents.word(result, folder),
        contents.tags(result, folder),
        dict(contents.parameters(folder)),
        _stepped([*figures, *parts.above(_cells(folder, result))]),
        contents.status([result]),
    )


def called(point: Path, sweep: Path | None) -> str:
    """The name of what is audited, without its outcome: of a run by itself, or of `sweep`; empty where an edited
    record gives none."""
    try:
        if sweep:
            return track.sweep_name(sweep)
        name = (read(point / records.NAME).get("config") or {}).get("name")
        return names.begun(read(point / "result.json"), point, str(name))
    except Exception:  # an edited record holds anything
        return ""


def cells(folder: Path, result: Result) -> list[Told]:
    """Of the runs below that of an evaluation, one for each cell; none where they were too many."""
    above, made = contents.configured(folder), []
    for row in _cells(folder, result):
        said = parts.told(row, description.of_part(folder))
        figures = _stepped((k, float(v), 0) for k, v in row["metrics"].items())
        tags = {**contents.of_part(result), **row["tags"], **said}
        params = parts.parameters(row, above)
        made.append(Told(row["name"], said.get("outcome", ""), tags, params, figures))
    return made


def sweep(folder: Path, done: list[Path], held: dict[str, Any]) -> Told:
    """Of the run above the points of a sweep, which are those with a result. held: the run as the server has it."""
    known = parent.known(folder)
    if known.get(remnant.CUT):
        return _cut(folder, held, known.get("asked"))
    document = read(folder / "sweep.json")
    asked = document.get("asked", document.get("points"))
    facts = sweep_of(folder, answers.completed(folder, points.rows(done)), asked)
    rows, marked, best = list(facts.points), facts.marked, facts.best_point
    words, sentence, _, _ = shown.described(facts)
    missing = len(rows) < (asked or 0)
    ended = summed(folder, rows, first(best, marked), marked, not missing, sentence)
    before = held["metrics"]  # what an earlier try counted, and is zero now
    return Told(
        names.ended(track.sweep_name(folder), words),
        words,
        _said(folder, words, sentence) | ended,
        dict(parent.parameters(folder)),
        _stepped(totals(rows, facts.sought, before, best, facts.alike)),
        "KILLED" if missing else contents.status(rows),
    )


def _cut(folder: Path, held: dict[str, Any], asked: int | None) -> Told:
    """Of the run above the points of a sweep whose process was gone before its end."""
    left = remnant.left(folder, asked)
    return Told(
        names.ended(track.sweep_name(folder), left.words),
        left.words,
        _said(folder, left.words, left.sentence),
        dict(parent.parameters(folder)),
        _stepped(totals(left.rows, (), held["metrics"])),
        "KILLED",
    )


def _said(folder: Path, words: str, sentence: str) -> dict[str, str]:
    """The tags of a sweep's run, and its verdict, which was its outcome in older versions."""
    told = parent.told(words, sentence)
    return {"verdict": words, **parent.tags(folder), **parent.commit(folder), **told}


def _cells(folder: Path, result: Result) -> list[dict[str, Any]]:
    """The rows of the runs below that of an evaluation; none of another task, or of one that came to no end."""
    table = read(folder / ROWS, list) if result.get("task") == "evaluate" else []
    return evaluate.children(table) if table else []


def _stepped(figures: Iterable[tuple[str, float, int]]) -> Values:
    made: Values = {}
    for key, value, step in figures:
        made.setdefault(key, {})[step] = value
    return made
