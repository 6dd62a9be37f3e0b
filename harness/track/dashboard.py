"""MLflow's own server over our store, on this machine only: `python -m harness.track.dashboard`.

One server, no telemetry, no background jobs. Its address is printed once it answers, and leads to our runs.
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
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

from harness.config.tracking import check_uri
from harness.errors import ConfigProblem, HarnessError, Unreachable, suggestion
from harness.machine import free
from harness.track import pages, parent
from harness.track.store import ENVIRONMENT, Store, brief

PATIENCE, GRACE = 120.0, 0.5  # seconds in which a server answers, and in which it ends
SMALL = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight helper processes that nobody asked for
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi",  # of MLflow's own imports
}
EXPERIMENTS = "SELECT name FROM experiments WHERE lifecycle_stage = 'active'"


def store_of(runs_dir: Path, uri: str | None = None, experiment: str = "harness") -> Store:
    """The store at `uri`, else that of `runs_dir`."""
    return Store(SimpleNamespace(uri=uri, experiment=experiment, artifact_limit_mb=16.0), runs_dir)


def command(store: Store, host: str, port: int) -> list[str]:
    """The server's command line."""
    return [
        sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port),
        "--workers", "1", "--uvicorn-opts", "--log-level warning",
        "--backend-store-uri", store.uri, "--registry-store-uri", store.uri,
        *(["--artifacts-destination", store.artifacts] if store.artifacts else []),
    ]  # fmt: skip


def check(port: str) -> int:
    """Raise ConfigProblem for a port that cannot be listened on, with the next one that can."""
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ConfigProblem(f"port={port} is not possible: give 1 to 65535.")
    if not free(int(port)):
        near = next((p for p in range(max(int(port), 1023) + 1, 65536) if free(p)), None)
        remedy = f" port={near} is free." if near else ""
        raise ConfigProblem(f"port={port} is in use, or may not be listened on.{remedy}")
    return int(port)


def look(store: Store) -> None:
    """Raise ConfigProblem where the store's database is missing, or has no such experiment: this command only looks, and
    an empty one would be taken for no runs."""
    file = store.database or pages.database(store.uri)
    if file is None:
        return
    if not file.is_file():
        others = sorted(p for p in file.parent.glob("*.db") if p.is_file())
        near = " or ".join(f"track.uri=sqlite:///{other}" for other in others[:3])
        remedy = f"Did you mean {near}?" if near else "The last line of every run says the command."
        raise ConfigProblem(f"there are no runs here: {file} is not there. {remedy}")
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base,
    ):
        named(store, [name for (name,) in base.execute(EXPERIMENTS)])


def named(store: Store, known: list[str]) -> None:
    """Raise ConfigProblem where the experiment of `store` is none of those that are `known` there."""
    if (wanted := store.settings.experiment) not in known:
        raise ConfigProblem(
            f"there are no runs here: {store.uri} has no experiment '{wanted}'.{suggestion(wanted, known)} "
            "One is named with track.experiment=NAME."
        )


def page(store: Store, server: str, run_id: str = "") -> str:
    """The address on `server` of our runs in `store`, or of the one run `run_id`. Raises ConfigProblem where there is none."""
    with told(store), store.opened() as client:
        if not run_id:
            return pages.address(server, store.experiment)
        if run := parent.find(client, run_id):
            return pages.address(server, run.info.experiment_id, run_id)
    whole = " An id has 32 digits." * (len(run_id) < 32)
    raise ConfigProblem(f"run={run_id}: {store.shown} has no such run.{whole}")


def served(store: Store, run_id: str = "") -> str:
    """The same of a server, which has pages of its own. No experiment is made by a command that only looks."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    with told(store):
        try:
            client = MlflowClient(tracking_uri=store.uri)
            if run_id and (run := parent.find(client, run_id)):  # of whatever experiment
                return pages.address(store.uri, run.info.experiment_id, run_id)
            named(store, [e.name for e in client.search_experiments()])
        except MlflowException as problem:
            raise Unreachable(f"{store.uri}: {brief(problem)}.") from None
    return page(store, store.uri, run_id)


@contextmanager
def told(store: Store) -> Iterator[None]:
    """What MLflow says of a store that it cannot open is a ConfigProblem, without the traceback that its client logs."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    except Unreachable as problem:
        raise ConfigProblem(f"the dashboard cannot be opened: {problem}") from None
    finally:
        logging.disable(before)


def serve(store: Store, port: int, run_id: str = "") -> None:
    """Serve the runs of `store` until Ctrl-C. Raises ConfigProblem where MLflow does not start, with its last line."""
    os.environ.update(ENVIRONMENT | SMALL)
    print("MLflow starts, this takes some seconds ...", flush=True)
    with TemporaryFile("w+") as log:
        server = None
        try:
            # in a session of its own: it would answer Ctrl-C with a traceback
            server = subprocess.Popen(command(store, "127.0.0.1", port), start_new_session=True,
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
            address = page(store, f"http://127.0.0.1:{port}", run_id)
            _wait(server, port, log)
            print(f"dashboard: {address}\nCtrl-C ends it.", flush=True)
            server.wait()
        except KeyboardInterrupt:
            print(flush=True)
        finally:
            _end(server)


def _wait(server: subprocess.Popen[bytes], port: int, log: Any) -> None:
    """Until the server answers."""
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
    """Serve until interrupted. Raises ConfigProblem, before MLflow is begun, when there are no runs or the port is taken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", default="")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--port")
    parser.add_argument("--track-uri")
    parser.add_argument("--track-experiment", default="harness")
    given = parser.parse_args()
    check_uri(given.track_uri)
    store = store_of(given.runs_dir, given.track_uri, given.track_experiment)
    if pages.is_server(store.uri):
        if given.port:
            raise ConfigProblem(
                f"port= is not read: track.uri={store.uri} is a server that runs already."
            )
        print(f"dashboard: {served(store, given.run)}", flush=True)
        return
    if store.uri.startswith("databricks"):
        raise ConfigProblem(
            f"track.uri={store.uri} has pages of its own: open the experiment {given.track_experiment} in your workspace."
        )
    if store.database and not given.runs_dir.is_dir():
        raise ConfigProblem(
            f"there are no runs here: {given.runs_dir.absolute()} is no folder. Name the folder of your runs with "
            "runs_dir=DIR; the last line of every run says the whole command."
        )
    port = check(given.port or "5000")
    look(store)
    if given.run:  # whether there is one is said before a server starts
        page(store, "", given.run)
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGINT))  # the terminal was closed
    serve(store, port, given.run)


if __name__ == "__main__":
    try:
        main()
    except HarnessError as problem:
        print(f"harness: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
