"""What can be told about a record without running it: the seal, the configuration, the snapshot, the
place it lies in, and what the tracking store remembers of it. The record is only read."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import config as configs
from harness import machine
from harness.config import Config
from harness.config.moved import inside
from harness.errors import HarnessError, SnapshotInvalid, Untrusted, UntrustedPlugin
from harness.pipeline.finish import NOTHING_STORED, shown
from harness.report.audit import edits
from harness.save import store
from harness.snapshot import record as records
from harness.snapshot.digest import digest_bytes
from harness.task.audit import evaluation, server
from harness.task.audit.difference import changes, formed
from harness.task.audit.finding import Finding
from harness.task.audit.places import typed
from harness.task.audit.source import read

DIGEST = re.compile("[0-9a-f]{64}")
STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]+")


def verified(
    point: Path, cfg: Config, run_id: str | None = None, seen: server.Seen | None = None
) -> Iterator[Finding]:
    """What can be told without running: the seal, the configuration, the snapshot, the tracker. seen: is told
    what was compared with the tracker."""
    for what, was, now in records.broken(point):
        if was is None and now == "added":
            continue  # a note beside a record claims nothing
        yield edited(what, was, now, read(point / "result.json"))
    result, record = read(point / "result.json"), read(point / records.NAME)
    yield from formed(evaluation.told(point, result))
    yield from _configuration(point, record.get("config"), cfg.plugins, _misconfigured(result))
    yield from formed(_snapshot(point, result))
    yield from formed(_swapped(cfg, point, result, record, run_id))
    yield from formed(server.point(cfg, point, result, record, seen))


def edited(what: str, sealed: Any, now: Any, result: dict[str, Any]) -> Finding:
    """What a seal does not confirm: what the record says now, and that it is not what was sealed, of which
    only the digest is known."""
    digest = isinstance(sealed, str) and DIGEST.fullmatch(sealed)
    told = f"; sealed digest {sealed}" if digest else ""
    if what.startswith("result.json: "):
        gone = records.value_at(result, what.removeprefix("result.json: ")) is None
        which = "a" if gone else "another" if sealed else "no such"
        found = f"{which} value was sealed"
        return Finding(what, now, found, f"edited after the run{told}")
    if now == "missing":
        return Finding(what, "a file", "missing", f"this file of the record is missing{told}")
    if what == f"{records.NAME}: id":
        return Finding(
            what, sealed, now, "the id that the record gives itself is not that of its contents"
        )
    if told:
        return Finding(
            what, now, edits.FILE, f"not the file that was there when the run ended{told}"
        )
    return Finding(what, sealed, now, "not what was sealed when the run ended")


def _misconfigured(result: dict[str, Any]) -> bool:
    """Whether a record claims that it had no sound configuration: nothing ran."""
    return result.get("verdict") == "failed" and result.get("exit_code") == 2


def _configuration(point: Path, sealed: Any, plugins: Any, unsound: bool) -> Iterator[Finding]:
    """The recorded YAML against the values in the seal, which are what is run again: key by key, both ways. unsound:
    the record claims that its configuration was none, and nothing ran."""
    sides: list[dict[str, Any]] = []
    for name in (records.NAME, ".hydra/config.yaml"):
        try:
            held = configs.values(point / name) if sides else sealed
            sides.append(json.loads(json.dumps(asdict(configs.recorded(held, point, plugins)))))
        except UntrustedPlugin:
            raise
        except (HarnessError, OSError, ValueError) as problem:
            if not unsound:
                yield Finding(name, "a valid configuration", "none", str(problem))
            return
    for row in changes(*sides):
        why = "the recorded configuration is not the one that the run used"
        yield Finding(f"config: {row['what']}", row["recorded"], row["found"], why)


def _snapshot(point: Path, result: dict[str, Any]) -> Iterator[Finding]:
    claimed, place = result.get("snapshot"), place_of(point, result)
    if not isinstance(claimed, dict) or place is None:
        return  # nothing was kept; the second run says whether it is the same snapshot
    if sealed(place) and store.current().key is None:
        raise Untrusted(
            f"the snapshot of {shown(point)} is encrypted, so it can only be audited with its key: "
            "decrypt=KEYFILE."
        )
    try:
        _, manifest = store.load(place)
    except SnapshotInvalid as problem:
        for fault in problem.faults:
            yield Finding(
                "snapshot", "verified when it was written", fault, "the snapshot is damaged"
            )
        return
    except HarnessError as problem:
        yield Finding("snapshot", str(claimed.get("path")), "missing", str(problem))
        return
    if manifest["id"] != claimed.get("id"):
        why = "the result and the snapshot beside it belong to different runs"
        yield Finding("snapshot.id", claimed.get("id"), manifest["id"], why)
    stored = {e["name"]: e["digest"] for e in manifest["elements"]}
    for entry in result.get("elements") or []:
        if entry.get("digest") != stored.get(entry.get("name")):
            what, now = (
                f"element {entry.get('label')} {entry.get('name')}",
                stored.get(entry.get("name")),
            )
            yield Finding(what, entry.get("digest"), now, "not the digest in the manifest")


def keeps_none(result: dict[str, Any]) -> bool:
    """Whether a run is of a task that keeps no snapshot; `task` is compared with the second run's."""
    return result.get("task") == "evaluate" and result.get("snapshot") == NOTHING_STORED


def place_of(point: Path, result: dict[str, Any]) -> Path | None:
    """Where the snapshot of the record in `point` lies; None when only its process kept one, and where it lies
    outside of the record and the command does not name it."""
    claimed = result.get("snapshot")
    if not isinstance(claimed, dict) or claimed.get("format") == "memory" or keeps_none(result):
        return None
    said = Path(str(claimed.get("path")))
    places = (point / "snapshot", point / "snapshot" / said.name)  # the second: a chat's last turn
    place = next((p for p in places if (p / "manifest.json").is_file()), None)
    named = any(inside(Path(folder), str(said)) for folder in typed("snapshot"))
    return place or (places[0] if places[0].exists() else said if named else None)


def sealed(place: Path | None) -> bool:
    """Whether the snapshot at `place` is encrypted, so that its id says nothing about its contents."""
    try:
        return place is not None and store.public(place) is not None
    except HarnessError:
        return False


def _swapped(
    cfg: Config, point: Path, result: dict[str, Any], record: dict[str, Any], run_id: str | None
) -> Iterator[Finding]:
    """A sound record in another record's place: seen by its name, the auditor's own record of that name, the run that
    was asked for."""
    said = Path(str(record.get("folder", point)))
    stamped = STAMP.fullmatch(point.name) or STAMP.fullmatch(point.absolute().parent.name)
    moved = (said.name, said.parent.name) != (point.absolute().name, point.absolute().parent.name)
    mine = ".." not in said.parts and said.absolute().is_relative_to(Path(cfg.runs_dir).absolute())
    other = read(said / records.NAME).get("id") if mine and said.is_dir() else record.get("id")
    if (stamped and moved and said.name != point.name) or (moved and other != record.get("id")):
        yield Finding(
            "folder", str(said), shown(point), "a swapped run: this record was made elsewhere"
        )
    claimed = (result.get("mlflow") or {}).get("run_id")
    if run_id and claimed != run_id:
        why = "a swapped run: this directory holds another run's record"
        yield Finding("mlflow.run_id", run_id, claimed, why)


MISSING = 10  # points that are named


def summary(sweep: Path, points: list[Path]) -> Iterator[Finding]:
    """The sweep's table against its points."""
    from harness.results import points as pages

    whole = read(sweep / "sweep.json")
    claimed = whole.get("finished")
    if claimed is not None and claimed != len(points):
        known = whole["sealed"].get("records") if isinstance(whole.get("sealed"), dict) else None
        gone = sorted(
            {*(known or ())} - {p.name for p in points}, key=lambda name: (len(name), name)
        )
        why = (
            f"{machine.many(len(gone), 'point')} missing: {', '.join(gone[:MISSING])}"
            if gone
            else "points are missing"
        )
        yield Finding("sweep.json: finished", claimed, len(points), why)
    try:
        recorded = pages.read_csv(sweep)
    except OSError:
        yield Finding("sweep.csv", "one row per point", "missing", "the table is missing")
        return
    seal = read(sweep / "sweep.json").get("sealed")
    seal = seal if isinstance(seal, dict) else {}  # a sweep from before there was a seal has none
    now = {
        p.name: read(p / records.NAME).get("id") for p in points if (p / "result.json").is_file()
    }
    if seal and seal.get("records") != now:
        why = "these are not the records that the sweep ended with"
        yield Finding("sweep.json: records", seal.get("records"), now, why)
    fresh = pages.as_text(pages.rows([p for p in points if (p / "result.json").is_file()]))
    by_point = {r["point"]: r for r in recorded}
    for row in fresh:
        was = by_point.get(row["point"], {})
        for key, value in row.items():
            if was and key not in was:
                continue  # a column that came later claims nothing
            if key not in ("mlflow_run_id", "folder") and not _equal(was.get(key), value):
                why = "the table does not say what the point's result says"
                yield Finding(f"sweep.csv: {key}", was.get(key), value, why, row["point"])
    yield from _answers(sweep, points)
    for name in (pages.TABLE, *(n for n in (pages.CELLS, pages.PAGE) if n in seal)):
        table = sweep / name
        data = digest_bytes(table.read_bytes()) if table.is_file() else "missing"
        if seal and seal.get(name) != data:
            page = name == pages.PAGE
            what, other = ("page", edits.FILE) if page else ("table", edits.TABLE)
            why = f"the {what} was edited after the sweep; sealed digest {seal.get(name)}"
            yield Finding(name, data, other, why)


def _equal(one: str | None, other: str | None) -> bool:
    """Whether two cells say the same: the same text, or the same number written otherwise."""
    if one == other:
        return True
    try:
        return float(str(one)) == float(str(other))
    except ValueError:
        return False


def _answers(sweep: Path, points: Sequence[Path]) -> Iterator[Finding]:
    """Whether the table of cells, which a sweep from before there was one has not, says what the evaluations of
    its points say."""
    from harness.results import answers
    from harness.results import points as pages

    if not (sweep / pages.CELLS).is_file():
        return
    rows = pages.rows([p for p in points if (p / "result.json").is_file()])
    recorded, fresh = pages.read_csv(sweep, pages.CELLS), pages.as_text(answers.table(sweep, rows))
    if len(recorded) != len(fresh):
        why = "the table does not have a row per point and cell"
        yield Finding(f"{pages.CELLS}: rows", len(recorded), len(fresh), why)
    for was, row in zip(recorded, fresh):
        for key in [k for k, value in was.items() if row.get(k, "") != value]:
            why = "the table does not say what the answers of the point say"
            yield Finding(f"{pages.CELLS}: {key}", was[key], row.get(key), why, row["point"])
