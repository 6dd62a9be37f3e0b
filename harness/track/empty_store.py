"""An empty sqlite store, made beside the work and put in its place whole.

MLflow makes one in some hundred steps, each of them on disk before the next: seconds for which nobody should
wait, and a store that is broken for good where they are cut off.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

_made: list[TemporaryDirectory[str]] = []  # in which this process has one ready
NAME, ARTIFACTS = "mlflow.db", "artifacts"


def make() -> None:
    """Have one ready. Raises what MLflow raises."""
    from mlflow.tracking import MlflowClient
    from sqlalchemy import Engine, event

    def hurry(connection: object, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]  # a copy lasts

    place = TemporaryDirectory(prefix="harness-")
    event.listen(Engine, "connect", hurry)
    try:
        MlflowClient(tracking_uri=f"sqlite:///{place.name}/{NAME}").search_experiments(
            max_results=1
        )
    finally:
        event.remove(Engine, "connect", hurry)
    _made.append(place)


def put(path: Path) -> None:
    """Make `path` an empty store, unless it is there, for its owner only, as what it keeps of runs is: prompts, and
    what was said. Nobody else may do so meanwhile. Raises OSError."""
    if path.exists():
        return
    if not _made:
        make()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as copy:
            temporary.chmod(0o600)
            _placed(path.with_name(ARTIFACTS))
            copy.write(Path(_made[0].name, NAME).read_bytes())
            copy.flush()
            os.fsync(copy.fileno())
        temporary.replace(path)
        path.with_name(ARTIFACTS).mkdir(mode=0o700, exist_ok=True)
    finally:
        temporary.unlink(missing_ok=True)


def _placed(artifacts: Path) -> None:
    """Have the experiment that every store begins with keep its files beside the others', not where a process stood."""
    with closing(sqlite3.connect(Path(_made[0].name, NAME))) as base, base:
        base.execute(
            "update experiments set artifact_location = ?", (artifacts.absolute().as_uri(),)
        )
