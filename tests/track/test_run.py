"""One result in a store: made once, recorded once, and found again."""

import fcntl
import json
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from stores import client
from tracking import expected

from harness import track
from harness.errors import Unreachable
from harness.snapshot.record import read
from harness.track import run, store
from harness.track.store import Store

SETTINGS = SimpleNamespace(name="mlflow", uri=None, experiment="harness", artifact_limit_mb=0.0)


@pytest.fixture
def folder(recorded, tmp_path) -> Path:
    """A run that waits to be recorded."""
    folder = shutil.copytree(recorded, tmp_path / "run")
    waiting(folder)
    return folder


def waiting(folder: Path) -> dict:
    result = {**read(folder / "result.json"), "mlflow": None}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "pending.json").write_text("{}")
    return result


def statuses(runs: Path) -> list[str]:
    base = sqlite3.connect(runs / "mlflow.db")
    return [status for (status,) in base.execute("select status from runs order by status")]


def test_a_fresh_store_is_for_its_owner_and_whole(folder, tmp_path):
    runs = tmp_path / "runs"
    block, problem = track.log(SETTINGS, str(runs), folder, waiting(folder), "x")
    base = sqlite3.connect(runs / "mlflow.db")
    assert not problem and base.execute("select run_uuid from runs").fetchall() == [
        (block["run_id"],)
    ]
    assert base.execute("select count(*) from metrics").fetchone() == (expected(folder),)
    assert {p.name for p in runs.iterdir()} == {".mlflow.lock", "mlflow.db", "artifacts"}
    modes = {name: (runs / name).stat().st_mode & 0o777 for name in ("mlflow.db", "artifacts")}
    assert modes == {"mlflow.db": 0o600, "artifacts": 0o700}
    places = base.execute("select name, artifact_location from experiments").fetchall()
    assert places[0][0] == "Default" and len({place for _, place in places}) == 1, places
    before = (runs / "mlflow.db").stat().st_ino
    with Store(SETTINGS, runs).opened():
        assert (runs / "mlflow.db").stat().st_ino == before, "never put over one"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_full_disk_leaves_no_half_of_a_store(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unreachable, match="No space left"), Store(SETTINGS, tmp_path).opened():
        pass
    assert [p.name for p in tmp_path.iterdir()] == [".mlflow.lock"]


def test_what_is_not_tracked_leaves_nothing(folder, tmp_path):
    none = SimpleNamespace(name="none")
    assert track.log(none, str(tmp_path / "runs"), folder, waiting(folder), "x") == (None, "")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("done", [True, False], ids=["recorded meanwhile", "left to it"])
def test_who_comes_second_waits_and_records_only_what_is_left(folder, tmp_path, done) -> None:
    told: list[dict] = []
    place = Store(SETTINGS, tmp_path / "runs")
    result = waiting(folder)
    first = run.record(place, folder, result, "x") if done else None
    waiting(folder)
    second = threading.Thread(target=lambda: told.append(run.record(place, folder, result, "x")))
    with (folder / "record.json").open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        second.start()
        second.join(3)
        assert second.is_alive() and not told
        if first:
            (folder / "result.json").write_text(json.dumps({**result, "mlflow": first}))
            (folder / "pending.json").unlink()
    second.join(60)
    (block,) = told
    assert first in (None, block) and not (folder / "pending.json").exists()
    assert statuses(tmp_path / "runs") == ["FINISHED"]


def test_an_upload_that_was_cut_off_goes_on_and_adds_nothing_twice(folder, tmp_path, monkeypatch):
    runs, result = tmp_path / "runs", waiting(folder)

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.artifacts, "log", cut)
        track.log(SETTINGS, str(runs), folder, result, "x")
    assert statuses(runs) == ["KILLED"] and read(folder / "pending.json")["run_id"]
    (folder / "pending.json").write_text("{}")  # as if the id could not be written down
    block, _ = track.log(SETTINGS, str(runs), folder, result, "x", again=True)
    assert statuses(runs) == ["FINISHED"]
    base = sqlite3.connect(runs / "mlflow.db")
    assert base.execute("select count(*) from metrics").fetchone() == (expected(folder),)
    files = {f.path for f in client(runs).list_artifacts(block["run_id"])}
    assert files >= {
        "report.html",
        "result.json",
        "record.json",
        "elements.json",
        "hydra",
        "snapshot",
    }


def test_a_folder_that_was_run_anew_closes_the_run_that_was_cut_off(folder, tmp_path):
    runs = tmp_path / "runs"
    place = Store(SETTINGS, runs)
    with place.opened() as there:
        old = there.create_run(place.experiment, tags={"record": "another"}).info.run_id
    (folder / "pending.json").write_text(json.dumps({"run_id": old}))
    block = run.record(place, folder, waiting(folder) and read(folder / "result.json"), "x")
    assert block["run_id"] != old or statuses(runs) == ["FINISHED"]
    (folder / "pending.json").write_text(json.dumps({"run_id": old}))
    block = run.record(place, folder, {**read(folder / "result.json"), "mlflow": None}, "x")
    assert block["run_id"] != old and there.get_run(old).info.status == "KILLED"


def test_an_audited_run_says_what_its_audit_came_to(folder, tmp_path):
    runs = tmp_path / "runs"
    block, _ = track.log(SETTINGS, str(runs), folder, waiting(folder), "x")
    audit = shutil.copytree(folder, tmp_path / "audit")
    result = {"task": "audit", "verdict": "exact", "audit_of": block["run_id"], "mlflow": None}
    (audit / "pending.json").write_text("{}")
    mine, problem = track.log(SETTINGS, str(runs), audit, result, "audit")
    assert not problem
    tags = client(runs).get_run(block["run_id"]).data.tags
    assert tags["audited"] == f"same (run {mine['run_id']})"


def test_a_store_that_is_away_is_asked_once_for_a_while(folder, tmp_path):
    away = SimpleNamespace(**{**vars(SETTINGS), "uri": "sqlite:////dev/null/x.db"})
    result = waiting(folder)
    for tried in (True, False):
        block, problem = track.log(away, str(tmp_path), folder, result, "x")
        assert block is None and bool(problem) is tried
        assert read(folder / "pending.json")["reason"].startswith(
            "cannot track to sqlite:////dev/null/x.db: "
        )
    store._AWAY.clear()
