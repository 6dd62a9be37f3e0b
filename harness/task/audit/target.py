"""Which record `run=` names: a folder, or a run of the tracking store."""

import re
from contextlib import suppress
from pathlib import Path

from harness.config import Config, place
from harness.errors import InputProblem, printable
from harness.process import shown
from harness.results.points import TABLE, read_csv
from harness.snapshot.manifest import NAME as MANIFEST
from harness.task.audit import download, unfinished
from harness.task.audit.source import Run, away, lookup
from harness.track import description, provenance
from harness.track.parent import ABOVE

RECORD = (*unfinished.KEPT, ".hydra")
TABLES = (
    "holds the tables and the page of a sweep, as MLflow has them with the sweep's own run, and none of its "
    "points: each has a run of its own there. Audit the whole sweep by its id"
)


def located(cfg: Config) -> tuple[Path, str | None]:
    """`(directory, MLflow run id or None)` of the record that `run=` names."""
    if not cfg.run:
        raise InputProblem("task=audit needs run=DIR (a run or a sweep) or run=ID (of MLflow).")
    path = Path(cfg.run).expanduser()
    if path.is_dir():
        if not any((path / name).exists() for name in RECORD):
            what = (
                _of_sweep(cfg, path)
                or f"holds no record: neither result.json nor a sweep.{_saved(path) or _below(path)}"
            )
            raise InputProblem(f"run={cfg.run} {what}")
        if not unfinished.kept(path) and not unfinished.claimed(cfg, path):
            raise InputProblem(f"run={cfg.run} {unfinished.NOTHING}")
        return path, None
    if not re.fullmatch("[0-9a-f]{32}", cfg.run):
        raise InputProblem(
            f"run={cfg.run}: no such directory, and not the id of an MLflow run, which has 32 digits.{place.near(path)}"
        )
    run = lookup(cfg, cfg.run)
    known = run["tags"] if run else {}
    above = lookup(cfg, known.get(ABOVE))
    part = above and provenance.of(above["tags"]) == provenance.of(
        known
    )  # a cell, say, of an evaluation
    if part or not known.get("folder"):
        raise InputProblem(f"run={cfg.run}{_unrecorded(cfg, run, above)}")
    near, path = Path(known["folder"]), provenance.of(known)
    path = near if near.is_dir() else path
    if (
        run
        and not unfinished.claims(run)
        and not unfinished.kept(path)
        and not unfinished.copied(cfg, run)
    ):
        raise InputProblem(f"run={cfg.run} ({printable(run['name'])}) {unfinished.NOTHING}")
    if not path.is_dir():
        gone = f"run={cfg.run} was recorded in {path}, which is not there any more."
        if not known.get("kind"):  # of a sweep every point has its own files
            uri = cfg.track.uri or f"sqlite:///{cfg.runs_dir}/mlflow.db"
            gone += f" Its files are in the store: {download.command(cfg.run, uri)}."
        raise InputProblem(gone)
    return path, cfg.run


def _unrecorded(cfg: Config, run: Run | None, above: Run | None) -> str:
    """Why a run of this id, `run` where there is one, has no record, as the end of a message. above: the run that it
    is below."""
    store = cfg.track.uri or f"the tracking store of {cfg.runs_dir}"
    if run is None and (why := away(cfg)):
        return f" cannot be looked up: {why}. A folder needs no store."
    if run is None:
        return (
            f": {store} knows no such run. Another store is asked with track.uri=ADDRESS or runs_dir=DIR; "
            "a folder needs none."
        )
    if above and above["tags"].get("folder"):
        part = "cell" if above["tags"].get("task") == "evaluate" else "part"
        return (
            f" is a {part} ({printable(run['name'])}) of run {above['id']}, whose record holds it; audit "
            f"that: task=audit run={above['id']}{_there(cfg)}"
        )
    if run["status"] == "KILLED" and not unfinished.claims(run):  # and left no folder
        return f" ({printable(run['name'])}) {unfinished.NOTHING}"
    return (
        f": {store} has it ({printable(run['name'])}), with no folder, so nothing here recorded it."
    )


def _of_sweep(cfg: Config, path: Path) -> str:
    """What a folder is that holds the files of a sweep's own run, as a server hands them out; empty of another."""
    if not (path / TABLE).is_file():
        return ""
    with suppress(OSError, ValueError):
        for row in read_csv(path):
            run = lookup(cfg, row.get("mlflow_run_id")) or {"tags": {}}
            if above := run["tags"].get(ABOVE):
                return f"{TABLES}: task=audit run={above}{_there(cfg)}"
    return f"{TABLES}: task=audit run=ID of the sweep's run."


def _saved(path: Path) -> str:
    """The run that saved what lies at `path`, as the end of a message; empty where none did."""
    above = path.absolute().parent
    mine = (path / MANIFEST).is_file() and (above / RECORD[0]).is_file()
    return f" It is what a run saved; the run is run={printable(shown(above))}" * mine


def _below(path: Path) -> str:
    """The newest record some folders below `path`, of the runs of a name or of all, as the end of a message; empty
    where there is none."""
    for depth in ("*", "*/*"):
        found = {
            file.parent
            for name in (RECORD[0], TABLE)
            for file in path.glob(f"{depth}/{name}")
            if "artifacts" not in file.parts  # copies on a tracking server's disk
        }
        if found:
            newest = max(found, key=lambda folder: (folder.stat().st_mtime_ns, folder))
            lie = (
                f"Below it lie {len(found)}; the newest is"
                if found - {newest}
                else "The one below it is"
            )
            return f" {lie} run={printable(shown(newest))}"
    return ""


def _there(cfg: Config) -> str:
    return description.there(cfg.track.uri, cfg.track.experiment, Path(cfg.runs_dir))
