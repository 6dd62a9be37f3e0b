"""The MLflow store of `track.uri`: sqlite under `runs_dir` unless it says else.

A fresh sqlite store is made once, under a lock: several processes that make it at the same time would break it for good.
One that is away is given up on after some seconds, and is not asked again for a while.
"""

import fcntl
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten
from typing import Any, TypeVar

from harness.errors import Unreachable
from harness.track import pages

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",  # its log lines go to harness.log
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
PATIENCE = {  # of servers; the user's own values count
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
TRIES = 6  # of a database, in 6 seconds; MLflow has no setting for its own 10 in 100 seconds
PAUSE, SHARE = (
    30.0,
    10,
)  # seconds without a new try, and at most a tenth of the time is spent trying
LONG = 400  # characters of MLflow's own message
ARTIFACTS = "artifacts"
DELETED = "Current state is deleted"  # of an experiment, in MLflow's words
WHO = re.compile(r"(?<=//)[^/@\s]*@")
_KNOWN: dict[tuple[str, str], str] = {}  # (uri, experiment) -> id, in this process
_AWAY: dict[tuple[str, str], tuple[float, str]] = {}  # (no try before, what was wrong)
T = TypeVar("T")


class Store:
    """The store that `settings` (a TrackConfig) names."""

    def __init__(self, settings: Any, runs_dir: Path):
        os.environ.update(ENVIRONMENT)
        logging.getLogger("alembic").setLevel(
            logging.WARNING
        )  # it tells each step of a fresh store
        for key, value in PATIENCE.items():
            os.environ.setdefault(key, value)
        self.settings = settings
        self.database = None if settings.uri else runs_dir.absolute() / "mlflow.db"
        self.uri = settings.uri or f"sqlite:///{self.database}"
        self.shown = settings.uri or f"sqlite:///{runs_dir / 'mlflow.db'}"
        self.experiment = ""  # its id, once the store is open
        self._where = (self.uri, settings.experiment)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """MLflow's client. Raises Unreachable where it fails in the block too, with what MLflow says of that."""
        until, reason = _AWAY.get(self._where, (0.0, ""))
        if (began := time.monotonic()) < until:
            raise Unreachable(reason, tried=False)
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with locked(self.database):
                if not pages.is_server(self.uri):
                    from mlflow.store.db import utils

                    utils.MAX_RETRY_COUNT = min(getattr(utils, "MAX_RETRY_COUNT", TRIES), TRIES)
                client = MlflowClient(tracking_uri=self.uri)
                if self._where not in _KNOWN:
                    _KNOWN[self._where] = self._opened(client)
                self.experiment = _KNOWN[self._where]
            yield client
        except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:
            _KNOWN.clear()
            reason = f"cannot track to {self.shown}: {brief(problem)}."
            if not self.database:
                pause = max(PAUSE, SHARE * (time.monotonic() - began))
                _AWAY[self._where] = (time.monotonic() + pause, reason)
            raise Unreachable(reason) from problem

    def _opened(self, client: Any) -> str:
        """The id of our experiment, made if need be, with the tags by which its page opens as runs."""
        from mlflow.exceptions import MlflowException

        name = self.settings.experiment
        known = client.get_experiment_by_name(name)
        if known is None:
            try:
                return str(client.create_experiment(name, self.artifacts, pages.TAGS))
            except MlflowException:  # another process was quicker
                known = client.get_experiment_by_name(name)
                if known is None:
                    raise
        for tag in pages.TAGS.keys() - known.tags.keys():
            with suppress(MlflowException):  # it can only be read
                client.set_experiment_tag(known.experiment_id, tag, pages.TAGS[tag])
        return str(known.experiment_id)

    @property
    def artifacts(self) -> str | None:
        """Where the files of a new experiment go: beside a database; a server knows."""
        if self.database:
            return self.database.with_name(ARTIFACTS).as_uri()
        file = pages.database(self.uri)
        return (file.absolute().parent / "mlartifacts").as_uri() if file else None

    def ask(self, question: Callable[[Any], T]) -> T:
        """What `question` makes of the client. Raises Unreachable."""
        with self.opened() as client:
            return question(client)

    def retry(self) -> None:
        """Ask again at the next call, however lately the store was away."""
        _AWAY.pop(self._where, None)

    def block(self, run_id: str, page: str = "") -> dict[str, str]:
        """Where a run is: the `mlflow` block of its result. page: the run that its address opens, not all of them."""
        place = {"run_id": run_id, "experiment": self.settings.experiment, "uri": self.shown}
        return place | pages.addresses(self.uri, self.experiment, page)


def brief(problem: Exception) -> str:
    """MLflow's own message: its first line, without who asks."""
    line = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    return shorten(WHO.sub("", line).rstrip("."), LONG, placeholder=" ...")


@contextmanager
def locked(database: Path | None) -> Iterator[None]:
    """One process at a time, with `database` made; any other store makes itself."""
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with (database.parent / ".mlflow.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not database.exists():
            create(database)
        yield


def create(path: Path) -> None:
    """Make `path` an empty store for its owner only (it holds prompts): whole or not at all, since MLflow takes a
    hundred steps for it."""
    from mlflow.tracking import MlflowClient
    from sqlalchemy import Engine, event

    def hurry(connection: Any, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    with TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as place:
        made = Path(place, path.name)
        event.listen(Engine, "connect", hurry)
        try:
            MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments(max_results=1)
        finally:
            event.remove(Engine, "connect", hurry)
        with (
            closing(sqlite3.connect(made)) as base,
            base,
        ):  # of the experiment that every store begins with
            base.execute(
                "update experiments set artifact_location = ?",
                (path.with_name(ARTIFACTS).as_uri(),),
            )
        made.chmod(0o600)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
    path.with_name(ARTIFACTS).mkdir(mode=0o700, exist_ok=True)
