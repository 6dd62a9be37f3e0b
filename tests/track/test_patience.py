"""A database that is away is waited for some seconds and no more: the record is there, and goes up later."""

from time import perf_counter
from types import SimpleNamespace

import pytest

from harness.errors import Unreachable
from harness.track.store import Store


def test_a_database_that_is_away_is_not_waited_for_long(harness):
    pytest.importorskip("psycopg")
    began = perf_counter()
    done = harness("steps=2", "track.uri=postgresql://me@127.0.0.1:1/db")
    assert done.code == 0 and "resume=" in done.out, done.out
    assert perf_counter() - began < 60, "MLflow by itself sleeps for 100 seconds"
    assert (done.folders[0] / "pending.json").is_file()


def test_whoever_meets_a_database_first_does_not_wait(tmp_path, monkeypatch):
    """A process that was made ready for another store has MLflow's own patience until then."""
    pytest.importorskip("psycopg")
    from mlflow.store.db import utils

    monkeypatch.setattr(utils, "MAX_RETRY_COUNT", 10)
    naps = []
    monkeypatch.setattr(utils.time, "sleep", naps.append)
    settings = SimpleNamespace(uri="postgresql://me@127.0.0.1:1/db", experiment="x")
    with pytest.raises(Unreachable), Store(settings, tmp_path).opened():
        pass
    assert naps and sum(naps) < 10, "MLflow by itself sleeps for 100 seconds"
