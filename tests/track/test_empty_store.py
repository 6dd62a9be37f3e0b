"""A fresh store is made beside the work: whoever waits for the first record waits for that record only."""

import os
import shutil
import sqlite3
from types import SimpleNamespace

import pytest
from tracking import expected

from harness import track
from harness.errors import Unreachable
from harness.snapshot.record import read
from harness.track import empty_store

SETTINGS = SimpleNamespace(name="mlflow", uri=None, experiment="harness", artifact_limit_mb=0.0)


def test_a_store_that_was_made_ready_is_put_in_its_place_by_the_first_record(swept, tmp_path, monkeypatch):  # fmt: skip
    monkeypatch.setattr(empty_store, "_made", [])
    store = track.tracker(SETTINGS, str(tmp_path / "runs"))
    store.ready()
    assert not (tmp_path / "runs").exists(), "a job that fails leaves none"
    monkeypatch.setattr(empty_store, "make", lambda: pytest.fail("it was ready"))
    folder = shutil.copytree(swept / "0", tmp_path / "run")
    result = read(folder / "result.json")
    block, problem = track.log(SETTINGS, str(tmp_path / "runs"), folder, result, "x")
    base = sqlite3.connect(tmp_path / "runs" / "mlflow.db")
    assert not problem and base.execute("select run_uuid from runs").fetchall() == [
        (block["run_id"],)
    ]
    assert base.execute("select count(*) from metrics").fetchone() == (expected(folder),)
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {".mlflow.lock", "mlflow.db", "artifacts"}  # fmt: skip
    closed = {
        name: (tmp_path / "runs" / name).stat().st_mode & 0o777
        for name in ("mlflow.db", "artifacts")
    }
    assert closed == {"mlflow.db": 0o600, "artifacts": 0o700}, "for its owner only"
    places = base.execute("select name, artifact_location from experiments").fetchall()
    assert places[0][0] == "Default" and len({place for _, place in places}) == 1, places
    before = (tmp_path / "runs" / "mlflow.db").stat().st_ino
    empty_store.put(tmp_path / "runs" / "mlflow.db")
    assert (tmp_path / "runs" / "mlflow.db").stat().st_ino == before, "never put over one"


def test_a_full_disk_leaves_no_half_of_a_store(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unreachable, match="the disk is full"):
        track.tracker(SETTINGS, str(tmp_path)).opened({})
    assert [p.name for p in tmp_path.iterdir()] == [".mlflow.lock"]
