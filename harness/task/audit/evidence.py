"""What can be told about a record without running it: the seal, the configuration, the snapshot, the place it lies in."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import config as configs
from harness.config import Config
from harness.config.moved import inside
from harness.errors import HarnessError, SnapshotInvalid, Untrusted, UntrustedPlugin
from harness.pipeline.finish import NOTHING_STORED, shown
from harness.save import store
from harness.snapshot import record as records
from harness.task.audit import evaluation, source
from harness.task.audit.difference import changes, formed, machine
from harness.task.audit.finding import Finding
from harness.task.audit.places import typed
from harness.task.audit.source import read

STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]+")


def verified(point: Path, cfg: Config, run_id: str | None = None) -> Iterator[Finding]:
    """Everything that does not hold about the record in `point`. run_id: the MLflow run that was asked for."""
    result, record = read(point / "result.json"), read(point / records.NAME)
    for what, was, now in records.broken(point):
        if was is not None or now != "added":  # a note beside a record claims nothing
            found = "missing" if now == "missing" else "another was sealed"
            yield Finding(what, now, found, f"edited after the run; sealed: {was}")
    config = record.get("config")
    yield from formed(_answers(point))
    yield from _configuration(point, config, cfg.plugins, _misconfigured(result))
    yield from formed(machine(result, config.get("device") if isinstance(config, dict) else None))
    yield from formed(_snapshot(point, result))
    yield from formed(_swapped(cfg, point, result, record, run_id))
    yield from formed(source.differences(cfg, point))


def _answers(point: Path) -> Iterator[Finding]:
    if told := evaluation.evaluation(point):
        yield from evaluation.following(told)


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
    for row in changes(*({"environment": side} for side in sides)):
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
