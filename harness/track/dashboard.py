"""MLflow's own server over our store, on this machine only: `python -m harness.track.dashboard`.

One server, no telemetry, no background jobs. Its address is printed once it answers, and leads to our
experiment's runs with the columns that tell them apart.
"""

import argparse
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

from harness.config import tracking
from harness.config.tracking import check_uri
from harness.errors import ConfigProblem, HarnessError, Unreachable, suggestion
from harness.machine import free
from harness.track import experiment, parent
from harness.track.mlflow import Mlflow
from harness.track.reasons import plain

PATIENCE, GRACE = 120.0, 0.5  # seconds in which a server answers, and in which it ends
ONCE = (
    "MLflow opens its Assistant once; closed, it stays closed. A run that you click opens in its menu GenAI: "
    "Model training, clicked there once, stays too."
)
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight helper processes that nobody asked for
    "DO_NOT_TRACK": "true",
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi",  # of MLflow's own imports
}
EXPERIMENTS = "SELECT name FROM experiments WHERE lifecycle_stage = 'active'"
DATABASES = ("postgresql", "mysql", "mssql")  # schemes of those that are no file


def store_of(runs_dir: Path, uri: str | None = None, experiment: str = "harness") -> Mlflow:
    """The store at `uri`, else that of `runs_dir`."""
    return Mlflow(SimpleNamespace(uri=uri, experiment=experiment, artifact_limit_mb=16.0), runs_dir)


def command(store: Mlflow, host: str, port: int) -> list[str]:
    """The server's command line."""
    place = store.place()
    return [
        sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port),
        "--workers", "1", "--uvicorn-opts", "--log-level warning",
        "--backend-store-uri", store.uri, "--registry-store-uri", store.uri,
        *(["--artifacts-destination", place] if place else []),
    ]  # fmt: skip


def check(port: int) -> None:
    """Raise ConfigProblem for a port that cannot be listened on, with the next one that can."""
    if not 1 <= port <= 65535:
        raise ConfigProblem(f"port={port} is not possible: give 1 to 65535.")
    if not free(port):
        near = next((p for p in range(max(port, 1023) + 1, 65536) if free(p)), None)
        raise ConfigProblem(
            f"port={port} is in use, or may not be listened on."
            + (f" port={near} is free." if near else "")
        )


def there(store: Mlflow) -> None:
    """Raise ConfigProblem where the database of `store` is not there, or has no such experiment: this is a command that
    only looks, and an empty one would be taken for no runs."""
    file = experiment.database(store.uri)
    if file is None:
        _named(store, _held(store.uri))
        return
    if file.is_file():
        held = f"{file.absolute().as_uri()}?mode=ro"
        with suppress(sqlite3.Error), closing(sqlite3.connect(held, uri=True)) as base:
            _named(store, [name for (name,) in base.execute(EXPERIMENTS)])
        return  # what cannot be read is MLflow's to say
    others = sorted(p for p in file.parent.glob("*.db") if p.is_file())
    near = " or ".join(f"track.uri=sqlite:///{other}" for other in others[:3])
    raise ConfigProblem(
        f"there are no runs here: {file} is not there."
        + (f" Did you mean {near}?" if near else " The last line of every run says the command.")
    )


def _held(uri: str) -> list[str]:
    """The experiments of a store that is neither a file nor a server; of a database that MLflow has never been in none,
    and it is left as it is. Raises ConfigProblem where it cannot be asked."""
    from mlflow.exceptions import MlflowException
    from mlflow.store.db.utils import create_sqlalchemy_engine
    from mlflow.tracking import MlflowClient
    from sqlalchemy import inspect, text
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if not uri.startswith(DATABASES):
            return [e.name for e in MlflowClient(tracking_uri=uri).search_experiments()]
        with create_sqlalchemy_engine(uri).connect() as base:
            known = inspect(base).has_table("experiments")
            return [name for (name,) in base.execute(text(EXPERIMENTS))] if known else []
    except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:
        raise ConfigProblem(f"the dashboard cannot be opened: {uri}: {plain(problem)}.") from None


def _named(store: Mlflow, known: list[str]) -> None:
    """Raise ConfigProblem where the experiment of `store` is none of those that are `known` there."""
    if (wanted := store.settings.experiment) not in known:
        near = (
            f".{suggestion(wanted, known)} One is named with track.experiment=NAME."
            if known
            else ""
        )
        raise ConfigProblem(
            f"there are no runs here: {store.uri} has no experiment '{wanted}'{near or ', nor any other.'}"
        )


def page(store: Mlflow, server: str, run_id: str = "") -> str:
    """The address on `server` of our runs in `store`, whose columns are brought up to date, or of the one run `run_id`.
    Raises ConfigProblem where there is no such run, Unreachable."""
    experiment_id = store.opened(experiment.TAGS)
    if not run_id:
        return experiment.address(server, experiment_id)
    run = store.ask(lambda client: parent.there(client, run_id))
    if run is None:
        whole = " An id has 32 digits." * (len(run_id) < 32)
        told = tracking.told("mlflow", store.settings.uri, store.settings.experiment)
        note = f" {told}." if told.startswith("MLFLOW_") else ""
        raise ConfigProblem(f"run={run_id}: {store.shown} has no such run.{whole}{note}")
    return experiment.address(server, run.info.experiment_id, run_id)


def looked(store: Mlflow, server: str, run_id: str) -> str:
    """`page` of a store that is a database. Raises ConfigProblem where it cannot be opened, too."""
    before = logging.root.manager.disable
    logging.disable()  # MLflow's client logs a traceback beside what it raises
    try:
        return page(store, server, run_id)
    except Unreachable as problem:
        raise ConfigProblem(f"the dashboard cannot be opened: {problem}") from None
    finally:
        logging.disable(before)


def already(store: Mlflow, server: str) -> bool:
    """Whether a dashboard of the runs in `store` answers at `server`: both have the same experiments."""
    try:
        urllib.request.urlopen(f"{server}/health", timeout=2).close()
    except (OSError, ValueError):
        return False
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        ours, theirs = (
            {
                (e.experiment_id, e.name, e.creation_time)
                for e in MlflowClient(uri).search_experiments()
            }
            for uri in (store.uri, server)
        )
    except MlflowException:
        return False
    return ours == theirs


def served(store: Mlflow, run_id: str = "") -> str:
    """The same of the server that `store` is, which has pages of its own. Raises ConfigProblem where it does not
    answer, or has no such experiment: none is made by a command that only looks."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient(tracking_uri=store.uri)
        if run_id and (run := parent.there(client, run_id)):  # of whatever experiment
            return experiment.address(store.uri, run.info.experiment_id, run_id)
        _named(store, [e.name for e in client.search_experiments()])
        return page(store, store.uri, run_id)
    except (MlflowException, Unreachable) as problem:
        said = problem if isinstance(problem, Unreachable) else f"{store.uri}: {plain(problem)}."
        raise ConfigProblem(f"the dashboard cannot be opened: {said}") from None


def serve(store: Mlflow, port: int, run_id: str = "") -> None:
    """Serve the runs of `store`, with the address of the one `run_id` where it is given, until Ctrl-C, which ends it
    within a second. Raises ConfigProblem where MLflow cannot open the store or does not start, in a line that says
    why."""
    os.environ.update(ENVIRONMENT)
    before = logging.root.manager.disable
    logging.disable()  # MLflow's client logs a traceback beside what it raises
    print("MLflow starts, this takes some seconds ...", flush=True)
    with TemporaryFile("w+") as log:
        server = None
        try:
            server = _started(store, port, log)
            address = page(store, f"http://127.0.0.1:{port}", run_id)
            _answers(server, port, log)
            print(f"dashboard: {address}", flush=True)
            print(f"Ctrl-C ends it. {ONCE}", flush=True)
            server.wait()
        except KeyboardInterrupt:
            print(flush=True)
        except Unreachable as problem:
            raise ConfigProblem(f"the dashboard cannot be opened: {problem}") from None
        finally:
            _end(server)
            logging.disable(before)


def _started(store: Mlflow, port: int, log: Any) -> subprocess.Popen[bytes]:
    """MLflow's server, which does not hear our Ctrl-C: it would answer with a traceback."""
    line = command(store, "127.0.0.1", port)
    return subprocess.Popen(line, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip


def _answers(server: subprocess.Popen[bytes], port: int, log: Any) -> None:
    """Wait until the server answers."""
    give_up = time.monotonic() + PATIENCE
    while True:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
            return
        if server.poll() is not None or time.monotonic() > give_up:
            log.seek(0)
            last = next((line for line in reversed(log.read().splitlines()) if line.strip()), "")
            raise ConfigProblem(
                f"MLflow's server did not start: {last.strip() or 'it says nothing'}"
            )
        time.sleep(0.1)


def _end(server: subprocess.Popen[bytes] | None) -> None:
    """End the server with all that it started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        if server is not None:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, how)
            with suppress(subprocess.TimeoutExpired):
                server.wait(GRACE)


def main() -> None:
    """Serve until interrupted. Raises ConfigProblem, before MLflow is begun, when there are no runs or the
    port is taken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--port")
    parser.add_argument("--track-uri")
    parser.add_argument("--track-experiment", default="harness")
    told = parser.parse_args()
    port = told.port or "5000"
    if not port.isdigit():
        raise ConfigProblem(f"port={port} is not possible: give 1 to 65535.")
    check_uri(told.track_uri)
    if experiment.is_server(told.track_uri or ""):
        if told.port:
            raise ConfigProblem(
                f"port= is not read: track.uri={told.track_uri} is a server that runs already."
            )
        store = store_of(told.runs_dir, told.track_uri, told.track_experiment)
        print(f"dashboard: {served(store, told.run)}\n{ONCE}", flush=True)
        return
    if told.track_uri is None and not told.runs_dir.is_dir():
        raise ConfigProblem(
            f"there are no runs here: {told.runs_dir.absolute()} is no folder. Name the folder of your runs"
            " with runs_dir=DIR; the last line of every run says the whole command."
        )
    if (told.track_uri or "").startswith("databricks"):
        raise ConfigProblem(
            f"track.uri={told.track_uri} has pages of its own: open the experiment {told.track_experiment} in your workspace."
        )
    store = store_of(told.runs_dir, told.track_uri, told.track_experiment)
    server = f"http://127.0.0.1:{port}"
    if (file := experiment.database(store.uri)) is None or file.is_file():
        there(store)  # what it has not it has not on any port
        if already(store, server):
            address = looked(store, server, told.run)
            print(f"dashboard: {address}\nIt is open there already.", flush=True)
            return
    check(int(port))
    there(store)
    if told.run:  # whether there is one is said before a server starts
        looked(store, server, told.run)
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGINT))  # the terminal was closed
    serve(store, int(port), told.run)


if __name__ == "__main__":
    try:
        main()
    except HarnessError as problem:
        print(f"harness: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
