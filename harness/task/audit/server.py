"""What a tracking server says of a record, of its cells and of a sweep, beside what the record gives: the record's digest,
the metrics' numbers, and its copies of the files. A person may rename, describe and tag a run there as they like.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from harness.config import Config
from harness.pipeline.finish import shown
from harness.report.evaluate import page as evaluate
from harness.report.names import folder as called
from harness.report.sweep import cells as answers
from harness.report.sweep import evaluated, search, seeds, summary, variation
from harness.report.sweep import page as pages
from harness.snapshot.result import CELL, METRICS, ORACLE, ROWS, SIZES, TIMES
from harness.task.audit import copies
from harness.task.audit.finding import Finding
from harness.task.audit.source import Run, ask, lookup, mlflow_of, read
from harness.task.audit.source import search as found_by
from harness.track import contents, metrics, parent, reader

Values = dict[str, dict[int, float]]  # by name and step
SHARES = ("contains", "exact")
# what a server says that the record gives nothing of is forged, where it is one of these
FIGURES = {f"{section}/{name}" for section, names in (
    ("best", (*SHARES, *parent.BEST, *parent.OWN.values())), ("full", SHARES), ("logits", METRICS), ("noise", METRICS),
    ("oracle", ORACLE), ("size", SIZES), ("time", TIMES),
) for name in names}  # fmt: skip
LARGEST = 1e308  # what a server makes of infinity, which no record holds
UNREAD = "its run in MLflow"


@dataclass
class Seen:
    """What was compared with a server. left: what could not be compared -> why. notes: what somebody wrote there
    that claims nothing. looked: what it holds belongs to no such record. deleted: whose runs were deleted there."""

    runs: int = 0
    copies: int = 0
    left: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    looked: bool = False
    deleted: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        gone = f"deleted in MLflow, and compared all the same: the run of {', '.join(self.deleted)}"
        notes = [*self.notes, *[gone] * bool(self.deleted)]
        return {"runs": self.runs, "copies": self.copies, "notes": notes}


def unseen(record: Path, seen: Seen, looked: bool = True) -> None:
    """A note in `seen` where the run or the sweep in `record` was tracked and nothing of that was found. looked: whether
    this audit looks there."""
    uri = mlflow_of(record).get("uri")
    if uri and not seen.runs and not seen.looked:
        how = (
            "runs_dir=DIR or track.uri=ADDRESS names it"
            if looked
            else "leave track=none out for it"
        )
        seen.notes.append(f"MLflow at {uri} was not looked at ({how})")


def point(
    cfg: Config, folder: Path, result: dict[str, Any], record: dict[str, Any], seen: Seen | None = None
) -> Iterator[Finding]:  # fmt: skip
    """What the tracking store says of the run in `folder`. It is found by the record's own digest; where there
    is none, by the run that the record claims and by the folder, which honest runs of it had: in a
    folder that was run again, the earlier ones are deleted. A deleted run contradicts nothing by that."""
    seen = seen or Seen()
    runs = found_by(cfg, "record", record.get("id"))
    if not runs:
        beside = [r for r in [lookup(cfg, (result.get("mlflow") or {}).get("run_id"))] if r]
        for place in {shown(folder), str(record.get("folder"))}:
            beside += [r for r in found_by(cfg, "folder", place) if not r["deleted"]]
        for run in beside[:1]:
            why = "the tracking store holds another seal for this run"
            seen.looked = True
            yield Finding("record.json: id", record.get("id"), run["tags"].get("record"), why)
        return
    if not result:  # each of its figures would be another, for one reason that is named
        seen.left[UNREAD], seen.looked = "its result.json cannot be read", True
        return
    if all(run["deleted"] for run in runs):
        seen.deleted.append(called(folder.name) if contents.in_sweep(folder) else shown(folder))
    for run in runs:
        rows = _rows(folder, result)
        yield from _compared(cfg, run, metrics.every(folder, result, rows), seen)
        yield from _cells(cfg, run, rows, seen)
        yield from copies.of_run(cfg, run["id"], folder, seen)


def sweep(cfg: Config, folder: Path, points: list[Path], run_id: str | None, seen: Seen) -> Iterator[Finding]:  # fmt: skip
    """What the store says of the run above the points of a sweep. run_id: that which was asked for."""
    run = lookup(cfg, run_id or parent.known(folder).get("run_id"))
    done = [p for p in points if (p / "result.json").is_file()]
    if not run or not done:
        return
    seen.deleted += ["the sweep"] * run["deleted"]
    rows = pages.rows(done)
    ways = search.ways(folder, rows)
    document = read(folder / "sweep.json")
    chosen, rows = answers.conclusion(folder, rows), evaluated.completed(folder, rows)
    axes = variation.varied(rows, ways)
    told = summary.said(
        rows, ways, document.get("asked", document.get("points")), chosen, seeds.told(rows, axes)
    )
    marked = list(summary.winners(rows, ways)[0])
    sought, alike = evaluated.sought(rows, ways), seeds.alike(rows, axes, marked)
    yield from _compared(
        cfg, run, parent.totals(rows, sought, run["metrics"], told[3], alike), seen
    )
    yield from copies.of_sweep(cfg, run["id"], folder, seen)


def _rows(folder: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the runs below that of an evaluation; none of another task, or of one that came to no end."""
    table = read(folder / ROWS, list) if result.get("task") == "evaluate" else []
    return evaluate.children(table) if table else []


def _compared(
    cfg: Config, run: Run, figures: Iterable[metrics.Figure], seen: Seen, of: str = ""
) -> Iterator[Finding]:
    """The metrics of one run beside those of its record. of: which cell it is."""
    seen.runs += 1
    what = f"mlflow: {of}: " if of else "mlflow: "
    made: Values = {}
    for key, number, step in figures:
        made.setdefault(key, {})[step] = number
    for key, values in made.items():
        there = run["metrics"].get(key)
        last = values[max(values)]
        if there is None or not isfinite(last):
            continue
        found = [(max(values), there)]
        if len(values) > 1:
            found += ask(cfg, partial(reader.steps, run_id=run["id"], key=key)) or []
        for step, value in found:
            known = step in values or abs(value) < LARGEST  # a record has neither infinity nor NaN
            if known and values.get(step) != value:
                at = f" at step {step}" * (len(values) > 1)
                why = f"MLflow's metric {key} is {value:.6g}{at}, the record gives {values.get(step, 'none')}"
                yield Finding(f"{what}{key}", values.get(step), value, why)
                break
    for key, value in run["metrics"].items():
        if key in FIGURES and key not in made and abs(value) < LARGEST:
            why = f"MLflow's metric {key} is {value:.6g}, the record gives none"
            yield Finding(f"{what}{key}", None, value, why)


def _cells(cfg: Config, above: Run, rows: list[dict[str, Any]], seen: Seen) -> Iterator[Finding]:
    """The runs below that of an evaluation: each is known by what its cell is."""
    cells = {tuple(row["tags"][key] for key in CELL): row for row in rows}
    for run in (ask(cfg, partial(reader.below, above=above)) or []) if cells else []:
        place = tuple(run["tags"].get(key) for key in CELL)
        if place in cells:
            figures = [(k, float(v), 0) for k, v in cells[place]["metrics"].items()]
            yield from _compared(cfg, run, figures, seen, of=cells[place]["name"])
        elif None not in place:
            why = "MLflow shows a cell below the evaluation that the record does not have"
            yield Finding(f"mlflow: {run['name']}", None, " ".join(map(str, place)), why)
