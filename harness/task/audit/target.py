"""Which record `run=` names: a folder, or a run of the tracking store."""

import re
import shlex
from pathlib import Path

from harness.config import Config, place
from harness.errors import InputProblem, Unreachable, printable
from harness.process import shown
from harness.snapshot import record as records
from harness.task.audit import source, sweep

RESULT = ("result.json", records.NAME, "multirun.yaml", sweep.RECORD)
NOTHING = "was stopped before it had a result: there is nothing to audit."
ABOVE = "mlflow.parentRunId"


def located(cfg: Config) -> tuple[Path, str | None]:
    """`(directory, MLflow run id or None)` of the record that `run=` names. Raises InputProblem."""
    if not cfg.run:
        raise InputProblem("task=audit needs run=DIR (a run or a sweep) or run=ID (of MLflow).")
    path = Path(cfg.run).expanduser()
    if path.is_dir():
        if not any((path / name).exists() for name in (*RESULT, ".hydra", "hydra")):
            raise InputProblem(
                f"run={cfg.run} holds no record: neither result.json nor a sweep.{_near(path)}"
            )
        if not _ended(path):
            raise InputProblem(f"run={cfg.run} {NOTHING}")
        return path, None
    if not re.fullmatch("[0-9a-f]{32}", cfg.run):
        raise InputProblem(
            f"run={cfg.run}: no such directory, and not the id of an MLflow run, which has 32 digits.{place.near(path)}"
        )
    store = cfg.track.uri or f"the tracking store of {cfg.runs_dir}"
    run_id = cfg.run
    try:
        run = source.asked(cfg, lambda client: source.reader.run(client, run_id))
    except Unreachable as problem:
        why = str(problem).removeprefix("cannot track to ").rstrip(".")
        raise InputProblem(
            f"run={cfg.run} cannot be looked up: {why}. A folder needs no store."
        ) from None
    if run is None:
        raise InputProblem(
            f"run={cfg.run}: {store} knows no such run. Another store is asked with track.uri=ADDRESS or runs_dir=DIR; "
            "a folder needs none."
        )
    tags, name = run["tags"], printable(str(run["name"]))
    folder, above = tags.get("folder"), source.lookup(cfg, tags.get(ABOVE))
    if above and (not folder or above["tags"].get("folder") == folder):  # a cell of an evaluation
        raise InputProblem(
            f"run={cfg.run} is a part ({name}) of run {above['id']}: audit that, task=audit run={above['id']}"
        )
    if not folder:
        raise InputProblem(
            f"run={cfg.run} ({name}) names no folder: nothing here recorded it, or it {NOTHING}"
        )
    path = Path(folder) if Path(folder).is_dir() else Path(tags.get("directory", ""), folder)
    if not path.is_dir():
        uri = shlex.quote(cfg.track.uri or f"sqlite:///{cfg.runs_dir}/mlflow.db")
        raise InputProblem(
            f"run={cfg.run} was recorded in {printable(str(path))}, which is not there any more. Its files are in the "
            f"store: `MLFLOW_TRACKING_URI={uri} mlflow artifacts download -r {cfg.run} -d record`, then audit run=record."
        )
    if not _ended(path):
        raise InputProblem(f"run={cfg.run} ({name}) {NOTHING}")
    return path, run_id


def _ended(path: Path) -> bool:
    return any((path / name).exists() for name in RESULT)


def _near(path: Path) -> str:
    """Where the record may lie: above a snapshot, or the newest one below; the end of a message."""
    above = path.absolute().parent
    if (path / "manifest.json").is_file() and (above / "result.json").is_file():
        return f" It is what a run saved; the run is run={printable(shown(above))}"
    for depth in ("*", "*/*"):
        found = {
            f.parent for name in ("result.json", sweep.TABLE) for f in path.glob(f"{depth}/{name}")
        }
        if found := {folder for folder in found if "artifacts" not in folder.parts}:
            newest = max(found, key=lambda folder: (folder.stat().st_mtime_ns, folder))
            return f" Below it lie {len(found)}; the newest is run={printable(shown(newest))}"
    return ""
