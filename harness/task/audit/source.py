"""What an audit reads: JSON of a record, and runs of the tracking store that it was started with."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import foreign
from harness.config import Config
from harness.errors import Unreachable
from harness.snapshot import record as records
from harness.track import parent, reader, tracker

Run = dict[str, Any]  # as `reader.of` gives it


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
        return _asked(cfg, question)


def _asked(cfg: Config, question: Callable[[Any], Any]) -> Any:
    """The same. Raises Unreachable."""
    track = getattr(cfg, "track", None)
    if track is None or track.name == "none":
        return None
    local = track.name == "mlflow" and track.uri is None
    if local and not (Path(cfg.runs_dir) / "mlflow.db").is_file():
        return None
    return tracker(track, cfg.runs_dir).ask(question)


def away(cfg: Config) -> str:
    """Why the audit's own tracking store cannot be asked; empty where it can, or where there is none."""
    try:
        _asked(cfg, lambda client: None)
    except Unreachable as problem:
        return str(problem).removeprefix("cannot track to ").rstrip(".")
    return ""


def mlflow_of(record: Path) -> Run:
    """Where the run or the sweep in `record` says that it was tracked; empty where it was not."""
    result = read(record / "result.json")
    return result.get("mlflow") or ({} if result else parent.known(record))


def lookup(cfg: Config, run_id: Any) -> Run | None:
    """The run with this id; None where there is none."""
    return ask(cfg, lambda client: reader.run(client, str(run_id))) if run_id else None


def search(cfg: Config, tag: str, value: Any) -> list[Run]:
    """Every run that bears this tag."""
    if not isinstance(value, str) or not value or set(value) & set("'\\"):
        return []
    return ask(cfg, lambda client: reader.search(client, tag, value)) or []


def deleted(cfg: Config, point: Path) -> bool:
    """Whether the tracking store has a run of this record, and only as a deleted one."""
    runs = search(cfg, "record", read(point / records.NAME).get("id"))
    return bool(runs) and all(run["deleted"] for run in runs)
