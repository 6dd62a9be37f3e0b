"""Many workers, one store: sqlite under joblib, a real MLflow server over PostgreSQL, and a server
that is killed in mid-sweep. No run and no metric may be lost."""

import importlib.util
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import track
from harness.snapshot import record

ROOT = Path(__file__).resolve().parents[2]
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)
JOBLIB = importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is not None
SUBMITIT = importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is not None
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

# A worker writes its share of runs the way a finished job does, from sealed folders.
WORKER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from harness import track
from harness.snapshot import record
source, place, uri, worker, count = sys.argv[1:]
result = {**record.read(Path(source) / "result.json"), "mlflow": None}
held = record.read(Path(source) / "record.json")
settings = SimpleNamespace(name="mlflow", uri=uri or None, experiment="many", artifact_limit_mb=0.0)
for number in range(int(count)):
    folder = Path(place) / "runs" / f"worker-{worker}-{number}"
    (folder / ".hydra").mkdir(parents=True)
    record.seal(folder, {**result, "size": {**result["size"], "tokens": int(number)}}, held["config"], {})
    block, problem = track.log(settings, Path(place) / "runs", folder, record.read(folder / "result.json"), folder.name)
    assert block, problem
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def four_workers(source: Path, place: Path, uri: str = "", count: int = 25) -> None:
    script = place / "worker.py"
    script.write_text(WORKER)
    workers = [
        subprocess.Popen([sys.executable, str(script), str(source), str(place), uri, str(w), str(count)],
                         env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for w in range(4)
    ]  # fmt: skip
    said = [w.communicate(timeout=500)[0] for w in workers]
    assert [w.returncode for w in workers] == [0] * 4, said


def expected(source: Path) -> int:
    from harness.track.contents import metrics

    return len(list(metrics(record.read(source / "result.json"))))


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


def test_four_workers_race_for_one_fresh_sqlite_store(recorded, tmp_path):
    """4 x 25 runs; the store does not exist when they begin."""
    four_workers(recorded, tmp_path)
    base = sqlite3.connect(tmp_path / "runs" / "mlflow.db")
    assert base.execute("select count(*) from runs where status='FINISHED'").fetchone()[0] == 100
    counts = {n for (n,) in base.execute("select count(*) from metrics group by run_uuid")}
    assert counts == {expected(recorded)}
    assert not list(tmp_path.glob("runs/*/pending.json"))


@pytest.mark.skipif(not JOBLIB, reason="pip install 'harness[joblib]'")
def test_joblib_launcher(runs, shell):
    """Workers of their own, one directory, one summary."""
    done = shell("-m", "steps=4", "seed=1,2,3,4", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2",
                 f"runs_dir={runs}", "name=joblib")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (runs / "joblib").iterdir()
    assert len((folder / "sweep.csv").read_text().splitlines()) == 5
    assert len(list(folder.glob("*/result.json"))) == 4
    assert json.loads((folder / "sweep.json").read_text())["mlflow"]["run_id"]


@pytest.mark.skipif(not SUBMITIT, reason="pip install 'harness[submitit]'")
def test_submitit_local_launcher(runs, shell):
    done = shell("-m", "steps=4", "seed=1,2", "hydra/launcher=submitit_local",
                 f"runs_dir={runs}", "name=submitit")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (runs / "submitit").iterdir()
    assert len((folder / "sweep.csv").read_text().splitlines()) == 3


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """A PostgreSQL of our own on localhost, gone afterwards."""
    if POSTGRES is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    if importlib.util.find_spec("psycopg2") is None:
        pytest.skip("no PostgreSQL driver: pip install 'harness[postgres]'")
    place, port = tmp_path_factory.mktemp("postgres"), free_port()
    user = []
    if os.geteuid() == 0:  # it refuses to run as root
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        for path in (place, *place.parents[:2]):
            path.chmod(0o755)
        shutil.chown(place, "postgres", "postgres")
    bins, data = POSTGRES.parent, place / "data"
    subprocess.run([*user, bins / "initdb", "-D", data, "-U", "harness", "-A", "trust"], check=True, capture_output=True)  # fmt: skip
    control = [*user, bins / "pg_ctl", "-D", data]
    options = (
        f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={place} -c fsync=off"
    )
    subprocess.run([*control, "-w", "-l", place / "log", "-o", options, "start"], check=True, capture_output=True)  # fmt: skip
    yield f"postgresql://harness@127.0.0.1:{port}/postgres"
    subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True)


def test_four_workers_on_a_server_over_postgresql(postgres, recorded, tmp_path):
    """4 x 25 runs through a real server; then read back from the database itself."""
    import psycopg2

    port = free_port()
    server = start(postgres, port, tmp_path)
    try:
        four_workers(recorded, tmp_path, f"http://127.0.0.1:{port}")
    finally:
        stop(server)
    with psycopg2.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from runs where status='FINISHED'")
        assert cursor.fetchone()[0] == 100
        cursor.execute("select distinct count(*) from metrics group by run_uuid")
        assert [n for (n,) in cursor.fetchall()] == [expected(recorded)]
    kept = list((tmp_path / "kept").rglob("result.json"))
    assert len(kept) == 100, "artifacts go through the server"


def test_a_server_that_is_killed_and_comes_back(recorded, tmp_path, monkeypatch):
    """Runs while it is away are kept and marked; then uploaded, once, also when it died half-way."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    port = free_port()
    uri, store = f"http://127.0.0.1:{port}", f"sqlite:///{tmp_path / 'server.db'}"
    held = record.read(recorded / "record.json")
    config = {**held["config"], "track": {**held["config"]["track"], "uri": uri}, "runs_dir": str(tmp_path)}  # fmt: skip
    settings = SimpleNamespace(**config["track"])
    folders = [tmp_path / "runs" / str(i) for i in range(4)]

    def finish(folder: Path) -> tuple:
        (folder / ".hydra").mkdir(parents=True)
        result = {**record.read(recorded / "result.json"), "mlflow": None}
        record.seal(folder, result, config, {})
        return track.log(settings, str(tmp_path), folder, result, folder.name)

    server = start(store, port, tmp_path)
    assert finish(folders[0])[0]["run_id"]
    stop(server)
    for folder in folders[1:3]:
        block, problem = finish(folder)
        assert block is None and "cannot track to" in problem
        assert (folder / "result.json").is_file() and (folder / "pending.json").is_file()
    server = start(store, port, tmp_path)
    try:
        assert [track.upload(f) for f in folders[1:3]] == ["", ""]
        # and one whose upload had begun: its run exists, half of it is there already
        block, _ = finish(folders[3])
        record.write_json(folders[3] / "pending.json", block)
        assert track.upload(folders[3]) == ""
    finally:
        stop(server)
    assert not list(tmp_path.glob("runs/*/pending.json"))
    base = sqlite3.connect(tmp_path / "server.db")
    assert base.execute("select count(*) from runs where status='FINISHED'").fetchone()[0] == 4
    assert {n for (n,) in base.execute("select count(*) from metrics group by run_uuid")} == {expected(recorded)}  # fmt: skip
    for folder in folders:
        assert record.read(folder / "result.json")["mlflow"]["uri"] == uri
