"""What an audit reads: JSON of a record, and runs of the tracking store that it was started with."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import foreign
from harness.config import Config
from harness.errors import Unreachable
from harness.snapshot import record as records
from harness.task.audit.finding import Finding
from harness.track import metrics, reader, tracker

Run = dict[str, Any]  # as `reader.of` gives it
LARGEST = 1e308  # what a server makes of infinity, which no record holds


def read(path: Path, kind: type = dict) -> Any:
    """The JSON in `path`; an empty `kind` where there is none."""
    try:
        document = foreign.read_json(path)
    except (OSError, ValueError):
        return kind()
    return document if isinstance(document, kind) else kind()


def ask(cfg: Config, question: Callable[[Any], Any]) -> Any:
    """What `question` makes of the client of the audit's own tracking store; None where there is none or it is
    away. A record's URI is never contacted."""
    with suppress(Unreachable):
        return asked(cfg, question)


def asked(cfg: Config, question: Callable[[Any], Any]) -> Any:
    """The same. Raises Unreachable."""
    track = getattr(cfg, "track", None)
    if track is None or track.name == "none":
        return None
    local = track.name == "mlflow" and track.uri is None
    if local and not (Path(cfg.runs_dir) / "mlflow.db").is_file():
        return None
    return tracker(track, cfg.runs_dir).ask(question)


def lookup(cfg: Config, run_id: Any) -> Run | None:
    """The run with this id; None where there is none."""
    return ask(cfg, lambda client: reader.run(client, str(run_id))) if run_id else None


def tracked(cfg: Config, point: Path) -> list[Run] | None:
    """The runs that the store has of the record in `point`, by its digest; None where it has another record's there."""
    known, result = read(point / records.NAME).get("id"), read(point / "result.json")
    sound = isinstance(known, str) and known.isalnum()
    if sound and (found := ask(cfg, lambda client: reader.search(client, "record", known))):
        return list(found)
    other = lookup(cfg, (result.get("mlflow") or {}).get("run_id"))
    return None if other else []


def differences(cfg: Config, point: Path) -> Iterator[Finding]:
    """What the store holds of the record in `point` and the record does not: another digest, other numbers. What it
    does not hold claims nothing; names, tags and descriptions are a person's own."""
    runs, result = tracked(cfg, point), read(point / "result.json")
    if runs is None:
        known = read(point / records.NAME).get("id")
        yield Finding("record.json: id", known, "another", "the tracking store holds another seal")
        return
    figures: dict[str, dict[int, float]] = {}
    for key, value, step in metrics.metrics(result) if result else ():
        figures.setdefault(key, {})[step] = value
    for run in runs:
        for key, values in figures.items():
            found = run["metrics"].get(key)
            last = max(values)
            if found is not None and abs(found) < LARGEST and found != values[last]:
                why = f"MLflow's run {run['id']} has another number"
                yield Finding(f"mlflow: {key}", values[last], found, why)
