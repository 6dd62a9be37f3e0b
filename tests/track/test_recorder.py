"""Recording beside the work: nothing is lost or written twice when either process is killed."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tracking import ROOT

from harness import track
from harness.track import recorder as beside

SETTINGS = SimpleNamespace(name="mlflow", uri=None, experiment="harness", artifact_limit_mb=16.0)
ASKING = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from harness.track import beside
settings = SimpleNamespace(**json.loads(sys.argv[1]))
beside.begin(settings, sys.argv[2])
result = {**json.loads(Path(sys.argv[3], "result.json").read_text()), "mlflow": None}
words = dict(settings=vars(settings), runs_dir=sys.argv[2], name="x", folder=sys.argv[3], result=result, again=False)
beside.running()._write({"call": "log", "place": os.getcwd(), "arguments": words})
os._exit(9)
"""


@pytest.fixture
def folder(swept, tmp_path) -> Path:
    """A finished run that no store knows."""
    made = tmp_path / "run"
    shutil.copytree(swept / "0", made)
    result = json.loads((made / "result.json").read_text())
    (made / "result.json").write_text(json.dumps({**result, "mlflow": None}))
    return made


def statuses(runs: Path) -> list[str]:
    try:
        return [
            s for (s,) in sqlite3.connect(runs / "mlflow.db").execute("select status from runs")
        ]
    except sqlite3.OperationalError:  # it is being made
        return []


def test_what_was_asked_is_recorded_although_the_asking_process_was_killed(folder, tmp_path):
    runs = tmp_path / "runs"
    words = [json.dumps(vars(SETTINGS)), str(runs), str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", ASKING, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.returncode == 9
    give_up = time.time() + 60
    while statuses(runs) != ["FINISHED"] or (folder / "pending.json").exists():
        assert time.time() < give_up, (statuses(runs), list(folder.iterdir()))
        time.sleep(0.2)
    assert json.loads((folder / "result.json").read_text())["mlflow"]["run_id"]


def test_without_the_other_process_the_run_is_recorded_all_the_same(folder, tmp_path, monkeypatch):
    recorder = beside.Recorder(SETTINGS, str(tmp_path / "runs"))
    assert recorder.alive
    recorder.process.kill()
    recorder.process.wait(10)
    assert not recorder.alive
    monkeypatch.setattr(beside, "running", lambda: recorder)  # it died between two looks
    result = json.loads((folder / "result.json").read_text())
    block, problem = track.log(SETTINGS, str(tmp_path / "runs"), folder, result, "x")
    assert block["run_id"] and not problem and statuses(tmp_path / "runs") == ["FINISHED"]


def test_where_no_process_can_be_started_the_job_goes_on(monkeypatch):
    def refused(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(beside, "_recorder", [])
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    monkeypatch.setattr(beside.subprocess, "Popen", refused)
    beside.begin(SETTINGS, "runs")
    assert beside.running() is None


def test_nothing_runs_beside_a_job_that_is_not_tracked(monkeypatch):
    monkeypatch.setattr(beside, "_recorder", [])
    beside.begin(SimpleNamespace(name="none"), "runs")
    assert beside.running() is None


def test_a_point_is_recorded_while_the_next_one_works_and_waited_for_at_the_end(swept, tmp_path, monkeypatch):  # fmt: skip
    sweep, runs = tmp_path / "sweep", str(tmp_path / "runs")
    sweep.mkdir()
    shutil.copy(swept / "multirun.yaml", sweep)
    recorder = beside.Recorder(SETTINGS, runs)
    monkeypatch.setattr(beside, "running", lambda: recorder)
    track.begin_sweep(vars(SETTINGS), runs, sweep, began=1.0)
    folders = [shutil.copytree(swept / point, sweep / point) for point in ("0", "1")]
    for folder in folders:
        (folder / "pending.json").write_text("{}")
        result = {**json.loads((folder / "result.json").read_text()), "mlflow": None}
        (folder / "result.json").write_text(json.dumps(result))
        assert track.log(SETTINGS, runs, folder, result, "x") == (None, "")
    assert any((folder / "pending.json").exists() for folder in folders), "nobody waited"
    assert track.upload(f for f in folders if (f / "pending.json").exists()) == ""
    assert all(json.loads((f / "result.json").read_text())["mlflow"]["run_id"] for f in folders)
    names = sqlite3.connect(tmp_path / "runs" / "mlflow.db").execute("select count(*) from runs")
    assert names.fetchone() == (3,)  # the sweep's and one for each
    recorder.end()
    recorder.process.wait(30)
