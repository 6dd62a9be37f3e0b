"""MLflow's own server over our store, on this machine only: `python -m harness.track.dashboard`.

One process, no telemetry, no background jobs. The address it prints leads to our experiment, with
the charts open.
"""

import argparse
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

from harness.errors import ConfigProblem, HarnessError
from harness.track.mlflow import Mlflow

KIND = "custom_model_development"  # runs and charts, not traces of language model applications
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight helper processes that nobody asked for
    "DO_NOT_TRACK": "true",
    "PYTHONWARNINGS": "ignore:starlette.middleware.wsgi",  # of MLflow's own imports
}


def prepare(runs_dir: Path, experiment: str = "harness") -> tuple[str, str]:
    """`(store URI, experiment id)`; creates an empty store where there is none."""
    settings = SimpleNamespace(uri=None, experiment=experiment, artifact_limit_mb=16.0)
    store = Mlflow(settings, runs_dir)
    return store.uri, store.opened(KIND)


def address(host: str, port: int, experiment_id: str) -> str:
    """Where the browser should go: our experiment's runs, as charts."""
    shown = f"{experiment_id}/runs?compareRunsMode=CHART&workflowType=machine_learning"
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


def main() -> None:
    """Serve until interrupted. Raises ConfigProblem when the port is taken, before anything is said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--port", type=int, default=5000)
    given = parser.parse_args()
    check(given.port)
    os.environ.update(ENVIRONMENT)
    uri, experiment_id = prepare(given.runs_dir)
    print(f"dashboard: {address('127.0.0.1', given.port, experiment_id)}", flush=True)
    print("Ctrl-C ends it. MLflow opens its Assistant once; closed, it stays closed.", flush=True)
    line = command(uri, given.runs_dir, "127.0.0.1", given.port)
    os.execv(line[0], line)


if __name__ == "__main__":
    try:
        main()
    except HarnessError as problem:
        print(f"harness: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
