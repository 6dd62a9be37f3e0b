"""Many workers, one store: a fresh sqlite file, a real MLflow server over PostgreSQL, and a server
that is killed in mid-sweep. No run and no metric may be lost."""

import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tracking import ENV, ROOT, expected, free_port, start, stop, whole

from harness import track
from harness.snapshot import record
from harness.track import pages

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
    record.seal(folder, {**result, "size": {**result["size"], "tokens": int(number) + 1}}, held["config"], {})
    block, problem = track.log(settings, Path(place) / "runs", folder, record.read(folder / "result.json"), folder.name)
    assert block, problem
"""


MANY = pytest.mark.parametrize("count", [6, pytest.param(25, marks=pytest.mark.slow)])


def four_workers(source: Path, place: Path, count: int, uri: str = "") -> None:
    script = place / "worker.py"
    script.write_text(WORKER)
    workers = [
        subprocess.Popen([sys.executable, str(script), str(source), str(place), uri, str(w), str(count)],
                         env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for w in range(4)
    ]  # fmt: skip
    said = [w.communicate(timeout=500)[0] for w in workers]
    assert [w.returncode for w in workers] == [0] * 4, said


@MANY
@pytest.mark.slow
def test_four_workers_race_for_one_fresh_sqlite_store(recorded, tmp_path, count):
    """The store does not exist when they begin."""
    four_workers(recorded, tmp_path, count)
    base = sqlite3.connect(tmp_path / "runs" / "mlflow.db")
    assert (
        base.execute("select count(*) from runs where status='FINISHED'").fetchone()[0] == 4 * count
    )
    counts = {n for (n,) in base.execute("select count(*) from metrics group by run_uuid")}
    assert counts == {expected(recorded)}
    assert not list(tmp_path.glob("runs/*/pending.json"))


@MANY
@pytest.mark.slow
def test_four_workers_on_a_server_over_postgresql(postgres, recorded, tmp_path, count):
    """Through a real server; then read back from the database itself."""
    import psycopg

    def finished() -> int:
        with psycopg.connect(postgres) as connection:
            query = "select count(*) from runs where status='FINISHED'"
            return connection.execute(query).fetchone()[0]

    port = free_port()
    server = start(postgres, port, tmp_path)
    before = finished()
    try:
        four_workers(recorded, tmp_path, count, f"http://127.0.0.1:{port}")
    finally:
        stop(server)
    with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
        assert finished() - before == 4 * count
        cursor.execute("select distinct count(*) from metrics group by run_uuid")
        assert [n for (n,) in cursor.fetchall()] == [expected(recorded)]
    kept = list((tmp_path / "kept").rglob("result.json"))
    assert len(kept) == 4 * count, "artifacts go through the server"


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back(recorded, tmp_path, monkeypatch):
    """Runs while it is away are kept and marked; then uploaded, once, also when it died half-way."""
    from mlflow.tracking import MlflowClient

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
    for folder, said in zip(folders[1:3], ("cannot track to", "")):  # told once
        block, problem = finish(folder)
        assert block is None and said in problem and bool(said) == bool(problem)
        assert (folder / "result.json").is_file() and (folder / "pending.json").is_file()
    server = start(store, port, tmp_path)
    try:
        assert track.upload(folders[1:3]) == ""
        # and one whose upload had begun: its run exists, half of it is there already
        block, _ = finish(folders[3])
        record.write_json(folders[3] / "pending.json", block)
        assert track.upload(folders[3:]) == ""
        # and one that was killed before it could write its run's id down
        MlflowClient(tracking_uri=uri).update_run(block["run_id"], status="RUNNING")
        record.write_json(folders[3] / "pending.json", {"reason": "upload not begun"})
        assert track.upload(folders[3:]) == ""
    finally:
        stop(server)
    assert not list(tmp_path.glob("runs/*/pending.json"))
    base = sqlite3.connect(tmp_path / "server.db")
    assert base.execute("select count(*) from runs where status='FINISHED'").fetchone()[0] == 4
    assert {n for (n,) in base.execute("select count(*) from metrics group by run_uuid")} == {expected(recorded)}  # fmt: skip
    for folder in folders:
        told = record.read(folder / "result.json")["mlflow"]
        assert told["uri"] == uri and told["page"] == pages.address(uri, "1", told["run_id"])


def test_our_page_opens_on_runs_also_where_the_experiment_was_there(recorded, tmp_path):
    """A choice that somebody made stays."""
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'server.db'}"
    client = MlflowClient(tracking_uri=uri)
    kind = "mlflow.experimentKind"
    theirs = client.create_experiment(
        "theirs", (tmp_path / "kept").as_uri(), {kind: "genai_development"}
    )
    settings = SimpleNamespace(name="mlflow", uri=uri, experiment="theirs", artifact_limit_mb=0.0)
    folder = shutil.copytree(recorded, tmp_path / "run", ignore=shutil.ignore_patterns("snapshot"))
    result = {**record.read(folder / "result.json"), "mlflow": None}
    assert track.log(settings, str(tmp_path), folder, result, "x")[0]["experiment"] == "theirs"
    told = client.get_experiment(theirs).tags
    assert told[kind] == "genai_development" and told[pages.VIEW] == pages.TAGS[pages.VIEW]


def test_a_sweep_to_a_server_ends_with_its_own_page_and_all_runs_which_the_dashboard_opens_too(
    process, place
):
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    server = start(f"sqlite:///{place / 'server.db'}", port, place)
    try:
        done = process(
            "-m", "steps=1,2", "prompt=text", f"track.uri={uri}", "track.experiment=shared"
        )
        words = ["dashboard", f"track.uri={uri}"]
        shown = process(*words, "track.experiment=shared")
        others = process(*words), process(*words, "port=5001")
    finally:
        stop(server)
    base = sqlite3.connect(place / "server.db")
    query = "select r.experiment_id, r.run_uuid from runs r join tags t using (run_uuid) where t.value = 'sweep summary'"
    ((made, run_id),) = base.execute(query)
    listed, own = f"{uri}/#/experiments/{made}/runs", "workflowType=machine_learning"
    dashboard = f"{listed}?viewStateShareKey=harness&{own}\n"
    assert done.code == 0
    assert f"mlflow run:   {listed}/{run_id}?{own}\ndashboard:    {dashboard}" in done.out
    assert shown.code == 0 and shown.out.startswith(f"dashboard: {dashboard}")
    assert "has no experiment 'harness'. " in others[0].out and "port= is not read" in others[1].out
    assert [other.code for other in others] == [2, 2]
    assert base.execute("select name from experiments").fetchall() == [("Default",), ("shared",)]


def points(folder: Path, name: str) -> list[Path]:
    return list(folder.glob(f"runs/live/*/*/{name}"))


@pytest.mark.slow
def test_a_server_killed_and_restarted_during_a_live_sweep(shell, tmp_path):
    """Killed after two points, back after four: every point is there or named with its command."""
    port, store = free_port(), f"sqlite:///{tmp_path / 'server.db'}"
    server = start(store, port, tmp_path)
    sweep = subprocess.Popen(
        [sys.executable, "-m", "harness", "-m", "steps=300", "seed=1,2,3,4,5,6", "name=live",
         f"runs_dir={tmp_path / 'runs'}", f"track.uri=http://127.0.0.1:{port}"],
        cwd=ROOT, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    give_up = time.time() + 300
    while len(points(tmp_path, "record.json")) - len(points(tmp_path, "pending.json")) < 2:
        assert time.time() < give_up and sweep.poll() is None
        time.sleep(0.05)
    stop(server)
    while len(points(tmp_path, "record.json")) < 4:
        assert time.time() < give_up and sweep.poll() is None
        time.sleep(0.05)
    server = start(store, port, tmp_path)
    try:
        said = sweep.communicate(timeout=300)[0]
        (folder,) = (tmp_path / "runs" / "live").iterdir()
        assert sweep.returncode == 0 and "Traceback" not in said, said
        assert len(points(tmp_path, "result.json")) == 6
        assert said.count("cannot track to") <= 2, "told once per try, not once per point"
        waiting = sorted(p.parent.name for p in points(tmp_path, "pending.json"))
        if waiting:
            summary = record.read(folder / "sweep.json")
            assert summary["not_uploaded"] == waiting and summary["upload"] in said
            assert summary["upload"] in (folder / "sweep.html").read_text()
        done = shell("-m", f"resume={folder}")
        assert done.returncode == 0 and not [x for x in done.stdout.splitlines() if x.startswith("[")]  # fmt: skip
    finally:
        stop(server)
    whole(tmp_path / "server.db", folder, 6)


@pytest.mark.slow
def test_a_server_that_was_never_there(process, place):
    """Nobody answers: the result is kept at once, and one command uploads it later."""
    port = free_port()
    began = time.monotonic()
    done = process("-m", "steps=4", "seed=1,2", f"track.uri=http://127.0.0.1:{port}")
    assert done.code == 0 and done.out.count("cannot track to") == 2, (
        "its first point and the end say so"
    )
    assert time.monotonic() - began < 90
    again = process(f"resume={done.folders[0]}")
    assert again.code == 2 and "cannot track to" in again.out
    server = start(f"sqlite:///{place / 'server.db'}", port, place)
    try:
        again = process(f"resume={done.folders[0]}")
        assert again.code == 0 and "was uploaded" in again.out
        assert "nothing to upload" in process(f"resume={done.folders[0]}").out
    finally:
        stop(server)
    base = sqlite3.connect(place / "server.db")
    assert base.execute("select count(*) from runs where status='FINISHED'").fetchone()[0] == 1


@pytest.mark.slow
def test_a_server_that_never_answers(process):
    """It takes the connection and says nothing: minutes must not pass."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        began = time.monotonic()
        done = process("steps=1", "prompt=text", "compare.oracle=false", f"track.uri=http://127.0.0.1:{mute.getsockname()[1]}",
                       env={"MLFLOW_HTTP_REQUEST_TIMEOUT": "1"})  # fmt: skip
    assert done.code == 0 and "cannot track to" in done.out, done.out
    assert time.monotonic() - began < 60
