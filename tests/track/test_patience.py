"""A database that is away is waited for some seconds and no more: the record is there, and goes up later."""

from time import perf_counter

import pytest


def test_a_database_that_is_away_is_not_waited_for_long(harness):
    pytest.importorskip("psycopg")
    harness("steps=2", "track=mlflow")  # whatever store the process has met before
    began = perf_counter()
    done = harness("steps=2", "track.uri=postgresql://me@127.0.0.1:1/db")
    assert done.code == 0 and "resume=" in done.out, done.out
    assert perf_counter() - began < 60, "MLflow by itself sleeps for 100 seconds"
    assert (done.folders[0] / "pending.json").is_file()
