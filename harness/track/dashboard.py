"""MLflow's own server over our store, on this machine only: `python -m harness.track.dashboard`.

One server, no telemetry, no background jobs. Its address is printed once it answers, and leads to our
experiment's runs with the columns that tell them apart.
"""

import argparse
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

from harness.errors import ConfigProblem, HarnessError, Unreachable
from harness.track.mlflow import Mlflow

PATIENCE, GRACE = 120.0, 0.5  # seconds in which a server answers, and in which it ends
COLUMNS = (
    "attributes.`Created`", "tags.`outcome`", "tags.`conclusion`", "params.`cache`", "params.`prune`",
    "metrics.`logits/max_abs_diff`", "metrics.`size/stored_bytes`",
)  # fmt: skip
WIDTHS = {"tags.`outcome`": 130, "tags.`conclusion`": 460}  # pixels
SHOWN = json.dumps({"selectedColumns": COLUMNS, "columnOrder": COLUMNS, "columnWidths": WIDTHS})
KIND = "custom_model_development"  # runs and charts, not traces of language model applications
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight helper processes that nobody asked for
    "DO_NOT_TRACK": "true",
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi",  # of MLflow's own imports
}


def prepare(runs_dir: Path, experiment: str = "harness") -> tuple[str, str]:
    """`(store URI, experiment id)`; creates an empty store where there is none. Raises Unreachable."""
    settings = SimpleNamespace(uri=None, experiment=experiment, artifact_limit_mb=16.0)
    store = Mlflow(settings, runs_dir)
    return store.uri, store.opened(
        {"mlflow.experimentKind": KIND, "mlflow.sharedViewState.harness": SHOWN}
    )


def address(host: str, port: int, experiment_id: str) -> str:
    """Where the browser should go: our experiment's runs."""
    shown = f"{experiment_id}/runs?viewStateShareKey=harness&workflowType=machine_learning"
    return f"http://{host}:{port}/#/experiments/{shown}"


def command(uri: str, runs_dir: Path, host: str, port: int) -> list[str]:
    """The server's command line."""
    return [
        sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port),
        "--workers", "1", "--uvicorn-opts", "--log-level warning",
        "--backend-store-uri", uri, "--registry-store-uri", uri,
        "--artifacts-destination", str(runs_dir.absolute() / "artifacts"),
    ]  # fmt: skip


def free(port: int) -> bool:
    """Whether nobody listens there on this machine."""
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what was just closed is free
        try:
            ours.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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


def serve(runs_dir: Path, port: int) -> None:
    """Serve the runs below `runs_dir` until Ctrl-C, which ends it within a second. Raises ConfigProblem
    where MLflow cannot open the store or does not start, in a line that says why."""
    os.environ.update(ENVIRONMENT)
    before = logging.root.manager.disable
    logging.disable()  # MLflow's client logs a traceback beside what it raises
    print("MLflow starts, this takes some seconds ...", flush=True)
    uri = f"sqlite:///{runs_dir.absolute() / 'mlflow.db'}"
    with TemporaryFile("w+") as log:
        server = None
        try:
            if (runs_dir / "mlflow.db").is_file():  # else it is made first, by one process
                server = _started(uri, runs_dir, port, log)
            _, experiment_id = prepare(runs_dir)
            server = server or _started(uri, runs_dir, port, log)
            _answers(server, port, log)
            print(f"dashboard: {address('127.0.0.1', port, experiment_id)}", flush=True)
            print("Ctrl-C ends it. MLflow opens its Assistant once; closed, it stays closed.", flush=True)  # fmt: skip
            server.wait()
        except KeyboardInterrupt:
            print(flush=True)
        except Unreachable as problem:
            raise ConfigProblem(f"the dashboard cannot be opened: {problem}") from None
        finally:
            _end(server)
            logging.disable(before)


def _started(uri: str, runs_dir: Path, port: int, log: Any) -> subprocess.Popen[bytes]:
    """MLflow's server, which does not hear our Ctrl-C: it would answer with a traceback."""
    line = command(uri, runs_dir, "127.0.0.1", port)
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
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--port", default="5000")
    told = parser.parse_args()
    if not told.port.isdigit():
        raise ConfigProblem(f"port={told.port} is not possible: give 1 to 65535.")
    if not told.runs_dir.is_dir():
        raise ConfigProblem(
            f"there are no runs here: {told.runs_dir.absolute()} is no folder. Name the folder of your runs"
            " with runs_dir=DIR; the last line of every run says the whole command."
        )
    check(int(told.port))
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGINT))  # the terminal was closed
    serve(told.runs_dir, int(told.port))


if __name__ == "__main__":
    try:
        main()
    except HarnessError as problem:
        print(f"harness: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
