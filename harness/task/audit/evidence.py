"""What can be told about a record without running it: the seal, the configuration, the snapshot, the
place it lies in, and what the tracking store remembers of it. The record is only read."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from harness import config as configs
from harness.config import Config
from harness.errors import HarnessError, SnapshotInvalid, Unreachable, Untrusted, UntrustedPlugin
from harness.pipeline.finish import NOTHING_STORED, shown
from harness.save import store
from harness.snapshot import record as records
from harness.snapshot.digest import digest_bytes
from harness.task.audit.difference import changes, flat, formed
from harness.task.audit.finding import Finding
from harness.track import contents, tracker
from harness.track.contents import wordless

STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]+")


def verified(point: Path, cfg: Config, run_id: str | None = None) -> Iterator[Finding]:
    """What can be told without running: the seal, the configuration, the snapshot, the tracker."""
    for what, was, now in records.broken(point):
        if was is None and now == "added":
            continue  # a note beside a record claims nothing
        yield Finding(what, was, now, _edited(what, now))
    result, record = read(point / "result.json"), read(point / records.NAME)
    if not (_misconfigured(result) and not _sound(point, cfg.plugins)):
        yield from _configuration(point, record.get("config"), cfg.plugins)
    yield from formed(_snapshot(point, result))
    yield from formed(_swapped(point, result, record, cfg, run_id))


def _edited(what: str, now: Any) -> str:
    if now == "missing":
        return "this file of the record is missing"
    if what.startswith("result.json: "):
        return "the sealed digest of this value is another: it was edited after the run"
    return "the file is not what was sealed when the run ended"


def _misconfigured(result: dict[str, Any]) -> bool:
    """Whether a record claims that it had no sound configuration: nothing ran."""
    return result.get("verdict") == "failed" and result.get("exit_code") == 2


def _sound(point: Path, plugins: Any) -> bool:
    try:
        configs.recorded(point / ".hydra" / "config.yaml", plugins)
    except UntrustedPlugin:
        raise
    except (HarnessError, OSError, ValueError):
        return False
    return True


def _configuration(point: Path, sealed_values: Any, plugins: Any) -> Iterator[Finding]:
    """The recorded YAML against the resolved values in the seal, key by key."""
    try:
        now = json.loads(
            json.dumps(asdict(configs.recorded(point / ".hydra" / "config.yaml", plugins)))
        )
    except UntrustedPlugin:
        raise
    except (HarnessError, OSError, ValueError) as problem:
        yield Finding(".hydra/config.yaml", "a valid configuration", "none", str(problem))
        return
    if not isinstance(sealed_values, dict):
        return
    known = dict(flat(sealed_values))
    for row in changes(sealed_values, now):
        if row["what"] not in known or not _read(row["what"], now):
            continue  # a key that came later, or that nothing reads, claims nothing
        why = "the recorded configuration is not the one that the run used"
        yield Finding(f"config: {row['what']}", row["recorded"], row["found"], why)


def _read(what: str, config: dict[str, Any]) -> bool:
    """Whether the key `what` of a configuration is read by the option that it chooses."""
    group, _, key = what.partition(".")
    if group == "plugins":
        return False  # where the code lay is the business of whoever runs it
    name = config[group].get("name") if isinstance(config.get(group), dict) else None
    key = key.partition(".")[0]
    return name is None or key in configs.readable(group, name)


def _snapshot(point: Path, result: dict[str, Any]) -> Iterator[Finding]:
    claimed, place = result.get("snapshot"), place_of(point, result)
    if not isinstance(claimed, dict) or place is None:
        return  # nothing was kept; the second run says whether it is the same snapshot
    if sealed(place) and store.current().decrypt is None:
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
    """Where the snapshot of the record in `point` lies; None when only its process kept one."""
    claimed = result.get("snapshot")
    if not isinstance(claimed, dict) or claimed.get("format") == "memory" or keeps_none(result):
        return None
    said = Path(str(claimed.get("path")))
    places = (point / "snapshot", point / "snapshot" / said.name)  # the second: a chat's last turn
    place = next((p for p in places if (p / "manifest.json").is_file()), None)
    return place or (places[0] if places[0].exists() else said)


def sealed(place: Path | None) -> bool:
    """Whether the snapshot at `place` is encrypted, so that its id says nothing about its contents."""
    try:
        return place is not None and store.public(place) is not None
    except HarnessError:
        return False


def _swapped(
    point: Path, result: dict[str, Any], record: dict[str, Any], cfg: Config, run_id: str | None
) -> Iterator[Finding]:
    """A sound record in another record's place: seen by its name, its neighbour, its tracker."""
    said = Path(str(record.get("folder", point)))
    stamped = STAMP.fullmatch(point.name) or STAMP.fullmatch(point.absolute().parent.name)
    moved = (said.name, said.parent.name) != (point.absolute().name, point.absolute().parent.name)
    other = read(said / records.NAME).get("id") if said.is_dir() else record.get("id")
    if (stamped and moved and said.name != point.name) or (moved and other != record.get("id")):
        yield Finding(
            "folder", str(said), shown(point), "a swapped run: this record was made elsewhere"
        )
    tracked = result.get("mlflow") or {}
    if run_id and tracked.get("run_id") != run_id:
        why = "a swapped run: this directory holds another run's record"
        yield Finding("mlflow.run_id", run_id, tracked.get("run_id"), why)
    yield from _tracked(point, result, record, cfg, tracked.get("run_id"))


def _tracked(
    point: Path, result: dict[str, Any], record: dict[str, Any], cfg: Config, claimed: Any
) -> Iterator[Finding]:
    """What the tracking store holds of this run. It is found by the record's own digest; where there
    is none, by the run that the record claims and by the folder, which honest runs of it had."""
    runs = search(cfg, "record", record.get("id"))
    if not runs:
        beside = [r for r in [lookup(cfg, claimed)] if r]
        for folder in {shown(point), str(record.get("folder"))}:
            beside += search(cfg, "folder", folder)
        for run in beside[:1]:
            why = "the tracking store holds another seal for this run"
            yield Finding("record.json: id", run["tags"].get("record"), record.get("id"), why)
        return
    metrics = {
        key: value for key, value, _ in contents.metrics(result) if not key.startswith("by_step/")
    }
    for run in runs:
        there = run["tags"].get("verdict")  # none where the task has no word for it
        if there != str(result.get("verdict")) and not (there is None and wordless(result)):
            why = "the tracking store holds another verdict for this record"
            yield Finding("mlflow: verdict", result.get("verdict"), there, why)
        for key, value in metrics.items():
            there = run["metrics"].get(key)
            if there is not None and isfinite(value) and there != value:
                why = "the tracking store holds another value for this record"
                yield Finding(f"mlflow: {key}", value, there, why)


def summary(sweep: Path, points: list[Path]) -> Iterator[Finding]:
    """The sweep's table against its points."""
    from harness.report import sweep as pages

    claimed = read(sweep / "sweep.json").get("finished")
    if claimed is not None and claimed != len(points):
        yield Finding("sweep.json: finished", claimed, len(points), "points are missing")
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
            if key not in ("mlflow_run_id", "folder") and was.get(key) != value:
                why = "the table does not say what the point's result says"
                yield Finding(f"sweep.csv: {key}", was.get(key), value, why, row["point"])
    data = digest_bytes((sweep / "sweep.csv").read_bytes())
    if seal and seal.get("sweep.csv") != data:
        why = "the table was edited after the sweep"
        yield Finding("sweep.csv", seal.get("sweep.csv"), data, why)


def tags(cfg: Config, run_id: str) -> dict[str, str]:
    """The tags of a run in the audit's own tracking store; a record's URI is never contacted."""
    return (lookup(cfg, run_id) or {}).get("tags", {})


def lookup(cfg: Config, run_id: Any) -> dict[str, Any] | None:
    """`tags` and `metrics` of the run with this id; None where there is none."""
    return _asked(cfg, lambda store: store.run(str(run_id))) if run_id else None


def search(cfg: Config, tag: str, value: Any) -> list[dict[str, Any]]:
    """The same of every run that bears this tag."""
    if not isinstance(value, str) or not value or set(value) & set("'\\"):
        return []
    return _asked(cfg, lambda store: store.search(tag, value)) or []


def _asked(cfg: Config, ask: Any) -> Any:
    track = getattr(cfg, "track", None)
    if track is None or track.name == "none":
        return None
    local = track.name == "mlflow" and track.uri is None
    if local and not (Path(cfg.runs_dir) / "mlflow.db").is_file():
        return None
    try:
        return ask(tracker(track, cfg.runs_dir))
    except Unreachable:
        return None


def read(path: Path, kind: type = dict) -> Any:
    """The JSON in `path`; an empty `kind` where there is none."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return kind()
    return document if isinstance(document, kind) else kind()
