"""A real MLflow server on this machine, started, killed and asked; and what a store must hold."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path

from harness.snapshot import record
from harness.track import metrics

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def below(pid: int) -> list[int]:
    """A process and all that it started, the youngest first."""
    children: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, path.read_text().split())
    return [p for child in children for p in below(child)] + [pid]


def kill(process: subprocess.Popen) -> None:
    """End a process as a power cut would, with all that it started, at once."""
    for pid in below(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(20)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(store: str, port: int, place: Path) -> subprocess.Popen:
    """A real tracking server; waits until it answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
         "--workers", "1", "--backend-store-uri", store, "--artifacts-destination", str(place / "kept")],
        env=ENV, stdout=(place / "server.log").open("a"), stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    give_up = time.time() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return process
        except OSError:
            assert time.time() < give_up and process.poll() is None, (
                place / "server.log"
            ).read_text()
            time.sleep(0.3)


def stop(process: subprocess.Popen) -> None:
    """Kill the server with its worker: the whole session it was started in."""
    os.killpg(process.pid, 9)
    process.wait(20)


def expected(folder: Path) -> int:
    """How many metric values the run in `folder` gives."""
    return len(metrics.every(folder, record.read(folder / "result.json"), []))


def ask(store: Path | str, query: str, *values: str) -> list[tuple]:
    """The rows from an sqlite file, or from a PostgreSQL by its URI."""
    if isinstance(store, Path):
        return sqlite3.connect(store).execute(query, values).fetchall()
    import psycopg

    with psycopg.connect(store) as connection:
        return connection.execute(query.replace("?", "%s"), values).fetchall()


def whole(store: Path | str, sweep: Path, points: int) -> None:
    """Assert that a store holds each of the sweep's points once, with every metric, and the parent
    with the right totals."""
    tagged = ask(
        store,
        "select r.run_uuid, r.status from runs r join tags t using (run_uuid)"
        " where t.key = 'sweep' and t.value = ?", sweep.name,
    )  # fmt: skip
    assert len(tagged) == points + 1 and {status for _, status in tagged} == {"FINISHED"}, tagged
    folders = sorted(p.parent for p in sweep.glob("*/result.json"))
    assert len(folders) == points == len((sweep / "sweep.csv").read_text().splitlines()) - 1
    for folder in folders:
        run_id = record.read(folder / "result.json")["mlflow"]["run_id"]
        ((held,),) = ask(
            store,
            "select count(*) from metrics where run_uuid = ? and key not like 'system/%'",
            run_id,
        )
        assert held == expected(folder), folder
        assert not (folder / "pending.json").exists()
    summary = record.read(sweep / "sweep.json")
    assert summary["points"] == summary["finished"] == points and "not_uploaded" not in summary
    parent = summary["mlflow"]["run_id"]
    totals = dict(ask(store, "select key, value from latest_metrics where run_uuid = ?", parent))
    assert totals["sweep/points"] == points
    said = Counter(record.read(f / "result.json")["verdict"] for f in folders)
    assert {verdict: totals[f"sweep/{verdict}"] for verdict in said} == said
