"""MLflow's own server over our store, on this machine only: `python -m harness.track.dashboard`.

One process, no telemetry, no background jobs. The address it prints leads to our experiment, with
the charts open.
"""

import argparse
import os
import sys
from pathlib import Path
from types import SimpleNamespace

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


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--port", type=int, default=5000)
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    uri, experiment_id = prepare(given.runs_dir)
    print(f"dashboard: {address('127.0.0.1', given.port, experiment_id)}", flush=True)
    print("Ctrl-C ends it. MLflow opens its Assistant once; closed, it stays closed.", flush=True)
    line = command(uri, given.runs_dir, "127.0.0.1", given.port)
    os.execv(line[0], line)


if __name__ == "__main__":
    main()
