"""An upload that was killed with everybody who could end it: who comes next completes it, and touches no other."""

import json
import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient
from tracking import ENV, ROOT, ask, expected, kill

from harness import track
from harness.snapshot.record import read
from harness.snapshot.result import write_json
from harness.track import contents, orphans, parent, remnant

SETTINGS = SimpleNamespace(name="mlflow", uri=None, experiment="harness", artifact_limit_mb=16.0)
ASKING = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from harness import track
settings = SimpleNamespace(**json.loads(sys.argv[1]))
track.begin(settings, sys.argv[2])
track.log(settings, sys.argv[2], Path(sys.argv[3]), json.loads(Path(sys.argv[3], "result.json").read_text()), "x")
"""


@pytest.fixture
def killed(swept, tmp_path):
    """The store, a client of it, and the folder of a run that was killed in the middle of its upload."""
    runs, folder = tmp_path / "runs", tmp_path / "a run"
    shutil.copytree(swept / "0", folder)
    write_json(folder / "result.json", {**read(folder / "result.json"), "mlflow": None})
    for number in range(3000):  # so that it lasts
        (folder / f"{number}.svg").touch()
    words = [json.dumps(vars(SETTINGS)), str(runs), str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", ASKING, *words], env=env)
    pending, give_up = folder / "pending.json", time.time() + 60
    while not (pending.exists() and "run_id" in pending.read_text()):
        assert process.poll() is None and time.time() < give_up
        time.sleep(0.001)
    kill(process)  # with its recorder
    store = track.tracker(SETTINGS, str(runs))
    return store, MlflowClient(tracking_uri=store.uri), folder


def test_an_upload_that_was_killed_is_completed_by_who_comes_next(killed):
    store, client, folder = killed
    run_id = read(folder / "pending.json")["run_id"]
    before = client.get_run(run_id)
    said = before.data.tags[orphans.UPLOADING]
    assert before.info.status == "RUNNING" and orphans.gone(said)
    host, rest = said.split(" ", 1)
    number, others = host.rpartition("/")[2], rest.split(maxsplit=3)
    for other in (
        f"elsewhere/{number} {rest}",
        f"{host}1 {rest}",  # a container's own numbers
        f"{orphans.stamp()} {folder}",
        f"{host} {others[0]} 1 {orphans._start(1)} {folder}",
    ):
        client.set_tag(run_id, orphans.UPLOADING, other)
        store.opened({})
        assert client.get_run(run_id).info.status == "RUNNING", other
        assert (folder / "pending.json").exists()
    client.set_tag(run_id, orphans.UPLOADING, said)
    orphans._seen.clear()
    store.ready()  # as a next run does
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED" and orphans.UPLOADING not in run.data.tags
    assert sum(len(client.get_metric_history(run_id, m)) for m in run.data.metrics) == expected(
        folder
    )
    assert {"report.html", "record.json", "2999.svg"} <= {
        a.path for a in client.list_artifacts(run_id)
    }
    assert not (folder / "pending.json").exists()
    assert read(folder / "result.json")["mlflow"]["run_id"] == run_id
    assert [r.info.run_id for r in client.search_runs(["1"])] == [run_id], "nothing is there twice"


def test_what_cannot_be_completed_is_killed_and_a_sweeps_point_is_left_to_its_sweep(
    swept, tmp_path
):
    runs = tmp_path / "runs"
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    shutil.copy(swept / "multirun.yaml", sweep)
    point = shutil.copytree(swept / "0", sweep / "0")
    track.begin_sweep(vars(SETTINGS), str(runs), sweep, began=1.0)
    store = track.tracker(SETTINGS, str(runs))
    client = MlflowClient(tracking_uri=store.uri)
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has collected it
    dead = " ".join([*orphans.stamp().split()[:2], str(process.pid), "7"])
    above = parent.known(sweep)["run_id"]

    def orphan(folder, record):
        tags = {orphans.UPLOADING: f"{dead} {folder}", "record": record}
        return client.create_run("1", tags=tags).info.run_id

    def status(run_id):
        store.opened({})
        return client.get_run(run_id).info.status

    assert status(orphan(tmp_path / "removed", "x")) == "KILLED"
    (point / "pending.json").write_text("{}")
    run_id, other = (
        orphan(point, contents.record_id(point)),
        orphan(point, "of an earlier run in this folder"),
    )
    assert status(other) == "KILLED" and status(run_id) == "RUNNING", "its sweep lives"
    client.set_tag(above, "process", dead)
    assert status(run_id) == status(above) == "KILLED" and (point / "pending.json").exists()
    note = client.get_run(above).data.tags["mlflow.note.content"].replace("&emsp;", "")
    assert "\n| folder | point | outcome | reason |\n" in note, "its points are not only counted"
    assert "\n| 0 | dynamic batch=1 | exact | logits are bit-equal" in note and note.endswith("`")
    result = {**read(point / "result.json"), "mlflow": None}
    track.log(SETTINGS, str(runs), point, result, "x", again=True)  # as `resume=` does
    assert status(run_id) == "FINISHED" and not (point / "pending.json").exists()
    assert process.wait() == 0
    parent._open.clear()


def test_a_sweep_that_runs_names_its_folder_as_its_points_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    note = remnant.going(tmp_path / "runs" / "x")["mlflow.note.content"]
    assert note.endswith("Folder: `runs/x`")


WHY = ("select run_uuid, name, status from runs where name like 'prune=none,%'",
       "select t.key, t.value from tags t join tags k on k.run_uuid = t.run_uuid where k.value = 'sweep summary'")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True])
def test_a_sweep_that_was_killed_says_what_is_there_and_how_to_go_on(tmp_path, everything):
    """By `kill -9` of its main process, whose recorder outlives it, or of everything, which the next run finds."""
    job = subprocess.Popen(
        [sys.executable, "-m", "harness", "-m", "prune=none,keydiff,snapkv", "seed=1,2,3", "steps=2"],
        cwd=tmp_path, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    runs, give_up = tmp_path / "runs", time.time() + 120
    while not list(runs.glob("*/*/1/result.json")):
        assert job.poll() is None and time.time() < give_up
        time.sleep(0.01)
    (sweep,) = (found.parent for found in runs.glob("*/*/multirun.yaml"))
    kill(job) if everything else job.kill()
    job.wait(20)
    store = track.tracker(SETTINGS, str(runs))
    if everything:
        [(_, name, status)] = ask(runs / "mlflow.db", WHY[0])
        going = dict(ask(runs / "mlflow.db", WHY[1]))
        assert status == "RUNNING" and f"-m resume={sweep.relative_to(tmp_path)}" in going["reason"]
        assert going["mlflow.note.content"].startswith("**running**")
        store.opened({})
    while (found := ask(runs / "mlflow.db", WHY[0]))[0][2] == "RUNNING":
        assert time.time() < give_up
        time.sleep(0.2)
    [(run_id, name, status)] = found
    told, done = dict(ask(runs / "mlflow.db", WHY[1])), len(list(sweep.glob("*/result.json")))
    assert status == "KILLED" and name.endswith(f": {told['outcome']}")
    assert 2 <= done < 9 and told["outcome"].startswith(f"{done} of 9 points: ")
    assert told["conclusion"].startswith(f"Stopped after {done} of 9 points: its process ended")
    assert f"resume={sweep if everything else sweep.relative_to(tmp_path)}" in told["reason"]
    assert "python -m harness -m resume=" in told["mlflow.note.content"]
    client = MlflowClient(tracking_uri=store.uri)
    run = client.get_run(run_id)
    assert run.data.metrics["sweep/points"] == done
    below = list(parent.below(client, "1", run_id))
    assert 1 <= len(below) <= done or everything
