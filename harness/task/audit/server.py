"""What a tracking server says of a record, of its cells and of a sweep, beside what the record gives.

The facts that the server was told are derived again and compared. A person may rename a run there, describe it, and
add what they like: that differs only where it claims another outcome than the record's. What a server does not hold
claims nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from harness import machine
from harness.config import Config
from harness.pipeline.finish import shown
from harness.report.names import folder as called
from harness.snapshot.result import CELL, METRICS, ORACLE, ORDER, SIZES, TIMES
from harness.task.audit import copies, tracking
from harness.task.audit.finding import Finding
from harness.task.audit.source import Run, ask, lookup, mlflow_of, search
from harness.task.audit.tracking import Told
from harness.track import contents, parent, reader
from harness.track.totals import BEST, OWN

# where a run lies and who made it: a record may be moved
PLACE = ("folder", "host", "directory", "sweep", "sweep.point", "process")
# what a server says that the record gives nothing of is forged, where it is one of these
RESULT = ("verdict", "outcome", "conclusion", "itself", "answer", "bitwise_equal", "mutated", "snapshot_id",
          "parent_snapshot_id")  # fmt: skip
SHARES = ("contains", "exact")
FIGURES = {f"{section}/{name}" for section, names in (
    ("best", (*SHARES, *BEST, *OWN.values())), ("full", SHARES), ("logits", METRICS), ("noise", METRICS), ("oracle", ORACLE), ("size", SIZES), ("time", TIMES),
) for name in names}  # fmt: skip
CLAIM = re.compile(
    rf"(?:\d+ )?\b(?:{'|'.join(ORDER)})\b"
    r"|contains \d[\d.]*(?: to \d[\d.]*)?|(?:\d[\d.]*% to )?\d[\d.]*% right"
    r"|\b(?:\d+|none) of \d+ safe\b|\bno safe choice\b"
)
ENDED = {"FINISHED", "FAILED"}
LARGEST = 1e308  # what a server makes of infinity, which no record holds
UNREAD = "its run in MLflow"
WORDS = ("outcome", "conclusion", "reason")  # tags that are no facts


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
    runs = search(cfg, "record", record.get("id"))
    if not runs:
        beside = [r for r in [lookup(cfg, (result.get("mlflow") or {}).get("run_id"))] if r]
        for place in {shown(folder), str(record.get("folder"))}:
            beside += [r for r in search(cfg, "folder", place) if not r["deleted"]]
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
        made = tracking.run(folder, result)
        if "verdict" not in run["tags"] and "verdict" in made.tags:
            why = "the tracking store holds no verdict for this record"
            yield Finding("mlflow: verdict", made.tags["verdict"], None, why)
        yield from _run(cfg, run, made, seen)
        yield from _cells(cfg, run, tracking.cells(folder, result), seen)
        yield from copies.of_run(cfg, run["id"], folder, seen)


def sweep(cfg: Config, folder: Path, points: list[Path], run_id: str | None, seen: Seen) -> Iterator[Finding]:  # fmt: skip
    """What the store says of the run above the points of a sweep. run_id: that which was asked for."""
    run = lookup(cfg, run_id or parent.known(folder).get("run_id"))
    done = [p for p in points if (p / "result.json").is_file()]
    if not run or not done:
        return
    seen.deleted += ["the sweep"] * run["deleted"]
    yield from _run(cfg, run, tracking.sweep(folder, done, run), seen)
    yield from copies.of_sweep(cfg, run["id"], folder, seen)


def _run(cfg: Config, run: Run, made: Told, seen: Seen, of: str = "") -> Iterator[Finding]:
    """One run beside what its record gives. of: which cell it is."""
    seen.runs += 1
    what = f"mlflow: {of}: " if of else "mlflow: "
    tags = run["tags"]
    for key, value in made.tags.items():
        there = tags.get(key)
        if key in PLACE or key.startswith("mlflow.") or there is None or there == value:
            continue
        if key in WORDS and _claims(there) <= _claims(value):
            continue
        yield _tag(what, key, value, there)
    for key in RESULT:
        if key in tags and key not in made.tags:
            yield _tag(what, key, None, tags[key])
    for key, value in made.params.items():
        there = run["params"].get(key)
        if there is not None and there != value:
            why = f"MLflow's parameter {key} is '{there}', the record gives '{value}'"
            yield Finding(f"{what}parameter {key}", value, there, why)
    yield from _metrics(cfg, run, made, what)
    # a sweep that could not go on is marked as failed, whatever its points came to
    marks = {"FINISHED"} if "kind" in made.tags else ENDED
    if made.status and run["status"] in marks - {made.status}:
        why = f"MLflow marks the run as {run['status']}, the record gives {made.status}"
        yield Finding(f"{what}status", made.status, run["status"], why)
    yield from _written(run, made, what)


def _tag(what: str, key: str, value: str | None, there: str) -> Finding:
    gives = "none" if value is None else f"'{value}'"
    why = f"MLflow's tag {key} is '{there}', the record gives {gives}"
    return Finding(f"{what}{key}", value, there, why)


def _metrics(cfg: Config, run: Run, made: Told, what: str) -> Iterator[Finding]:
    for key, values in made.metrics.items():
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
        if key in FIGURES and key not in made.metrics and abs(value) < LARGEST:
            why = f"MLflow's metric {key} is {value:.6g}, the record gives none"
            yield Finding(f"{what}{key}", None, value, why)


def _written(run: Run, made: Told, what: str) -> Iterator[Finding]:
    """Its name and its description, which a person may write anew, but not to claim another outcome."""
    name, note = run["name"], run["tags"].get("mlflow.note.content")
    if name is not None and not _claims(name) <= _claims(made.name):
        why = f"MLflow's name of the run is '{name}', the record gives '{made.name}'"
        yield Finding(f"{what}name", made.name, name, why)
    bold = re.match(r"\*\*(.*?)\*\*", note or "")
    if bold and not _claims(bold[1]) <= _claims(made.word):
        why = f"MLflow's description says '{bold[1]}', the record gives '{made.word}'"
        yield Finding(f"{what}description", made.word, bold[1], why)


def _claims(text: str | None) -> set[str]:
    """The outcomes that a text names: `equivalent`, and of several `2 exact`, each with its bare word."""
    claimed = set(CLAIM.findall(text or ""))
    return claimed | {c.split()[-1] for c in claimed if c[0].isdigit()}


def _cells(cfg: Config, above: Run, cells: list[Told], seen: Seen) -> Iterator[Finding]:
    """The runs below that of an evaluation: each is known by what its cell is."""
    if not cells:
        return
    found = ask(cfg, partial(reader.below, above=above)) or []
    mine = {tuple(cell.tags[key] for key in CELL): cell for cell in cells}
    there = set()
    for run in found:
        place = tuple(run["tags"].get(key) for key in CELL)
        if place in mine:
            there.add(place)
            yield from _run(cfg, run, mine[place], seen, of=mine[place].name)
        elif None not in place:
            why = "MLflow shows a cell below the evaluation that the record does not have"
            yield Finding(f"mlflow: {run['name']}", None, " ".join(map(str, place)), why)
    if found and len(there) < len(mine):
        gone = [cell.name for place, cell in mine.items() if place not in there]
        seen.left[f"{machine.many(len(gone), 'cell')} in MLflow"] = (
            f"no run there: {', '.join(gone)}"
        )
