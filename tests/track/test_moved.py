"""A tracking server that has another address by now: what is pending goes there."""

import json
import re
import sqlite3
from pathlib import Path

import pytest

from harness.config import tracking
from harness.errors import ConfigProblem
from harness.snapshot import record
from harness.track.store import DELETED, create

RUNS = "select r.name, r.status, p.value from runs r left join tags p on p.run_uuid = r.run_uuid and p.key = 'mlflow.parentRunId' where r.lifecycle_stage = 'active'"


def runs(store: Path) -> dict[str, tuple[str, bool]]:
    """Name -> (status, whether it is below another run)."""
    rows = sqlite3.connect(store).execute(RUNS).fetchall()
    assert len({name for name, *_ in rows}) == len(rows), "each once"
    return {name: (status, above is not None) for name, status, above in rows}


@pytest.fixture
def stranded(harness, place) -> Path:
    """A sweep of three points, whose server was away."""
    done = harness("-m", "task=save", "name=s", "seed=1,2,3", "track.uri=sqlite:////dev/null/x.db")
    assert done.code == 0 and "cannot track to sqlite:////dev/null" in done.out, done.out
    sweep = done.folders[0].parent
    assert len(list(sweep.glob("*/pending.json"))) == 3
    (onward,) = (line for line in done.out.splitlines() if line.startswith("go on with:"))
    assert onward.endswith("# track.uri=ADDRESS too, where the server has another address by now")
    return sweep


def test_what_is_pending_is_uploaded_to_where_the_server_is_now(harness, place, stranded) -> None:
    first, second = place / "first.db", place / "second.db"
    wrong = harness(f"resume={stranded / '0'}", "track.uri=sqlite:////dev/null/y.db")
    assert wrong.code == 2 and "cannot track to sqlite:////dev/null/y.db" in wrong.out
    for uri in ("sqlite:////dev/null/y.db", "ADDRESS"):
        assert re.search(rf"`harness resume=\S+/0 track.uri={uri}`", wrong.out), wrong.out
    typo = harness(f"resume={stranded / '0'}", "track.uri=htp://host")
    assert typo.code == 2 and "no address of a tracking server" in typo.out
    more = harness(f"resume={stranded / '0'}", f"track.uri=sqlite:///{first}", "seed=4")
    assert more.code == 2 and "leave out seed=4" in more.out and not first.exists()
    for store in (first, second):  # as somebody else has made them
        create(store)
    done = harness(f"resume={stranded / '0'}", f"track.uri=sqlite:///{first}")
    assert done.code == 0 and "was uploaded" in done.out, done.out
    assert set(runs(first).values()) == {("FINISHED", False)} and len(runs(first)) == 1
    assert re.search(r"^mlflow run:  +harness dashboard \S+ run=[0-9a-f]{32}$", done.out, re.M), (
        done.out
    )

    # its upload was cut off half-way, on the server that is gone: that run is not on the next one
    mark = stranded / "1" / "pending.json"
    mark.write_text(json.dumps(record.read(mark) | {"run_id": "0" * 32}))
    done = harness("-m", f"resume={stranded}", f"track.uri=sqlite:///{second}")
    assert done.code == 0 and not [x for x in done.out.splitlines() if x.startswith("[")], done.out
    assert f"MLflow:  sqlite:///{second}" in done.out and "not uploaded" not in done.out, done.out
    assert not list(stranded.glob("*/pending.json"))
    assert "3 points were there, 0 were run now, 2 were uploaded." in done.out
    there = runs(second)
    assert sorted(there.values()) == [("FINISHED", False), *[("FINISHED", True)] * 2], there
    assert {"seed=2: saved", "seed=3: saved"} < set(there)
    assert list((place / "mlartifacts").rglob("result.json")) and not (place / "mlruns").exists()
    assert len(runs(first)) == 1  # what was there stays there


def test_an_experiment_that_was_deleted_meanwhile_is_named_and_another_taken(
    harness, place
) -> None:
    empty = harness("task=save", "track.experiment=")
    assert empty.code == 2 and "track.experiment= is empty" in empty.out, empty.out
    store = f"track.uri=sqlite:///{place / 'own.db'}"
    assert harness("task=save", store, "track.experiment=old").code == 0
    with sqlite3.connect(place / "own.db") as base:
        base.execute("update experiments set lifecycle_stage = 'deleted' where name = 'old'")
    done = harness("task=save", store, "track.experiment=old")
    assert DELETED in " ".join(done.out.split()), done.out
    again = harness(f"resume={done.folders[0]}", "track.experiment=new")
    assert again.code == 0 and "track.experiment=new" in again.out, again.out
    names = (
        "select e.name from runs join experiments e using (experiment_id) where status = 'FINISHED'"
    )
    assert sqlite3.connect(place / "own.db").execute(names).fetchall() == [("old",), ("new",)]


def test_each_variable_that_is_passed_over_and_a_new_database_are_told(monkeypatch, place) -> None:
    for name in tracking.KEYS:
        monkeypatch.setenv(name, "x")
    assert tracking.told("mlflow", None, tracking.USUAL) == (
        "MLFLOW_TRACKING_URI is not heeded; to use it: track.uri=$MLFLOW_TRACKING_URI. "
        "MLFLOW_EXPERIMENT_NAME is not heeded; to use it: track.experiment=$MLFLOW_EXPERIMENT_NAME"
    )
    there = f"sqlite:///{place / 'mine.db'}"
    new, name = f"track.uri={there} is a new database", "MLFLOW_EXPERIMENT_NAME is not heeded"
    assert tracking.told("mlflow", there, tracking.USUAL).startswith(name)
    assert tracking.told("mlflow", there, "mine") == new
    deep = there.replace("mine.db", "typo/mine.db")
    assert f", in {place / 'typo'}, a folder that is new" in tracking.told("mlflow", deep, "mine")
    (place / "mine.db").touch()
    assert tracking.told("mlflow", there, "mine") == ""
    with pytest.raises(ConfigProblem, match=r"names a folder: give a file in it, .*/mlflow\.db\.$"):
        tracking.check_uri(f"sqlite:///{place}")
    assert tracking.told("none", None, tracking.USUAL) == ""


@pytest.mark.slow
def test_a_server_that_only_the_environment_names_is_not_passed_over_in_silence(
    harness, place, monkeypatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    said = "MLFLOW_TRACKING_URI is not heeded; to use it: track.uri=$MLFLOW_TRACKING_URI"
    for more in (("seed=1",), ("-m", "seed=1,2")):
        assert said in harness(*more, "task=save", "name=s", "track=mlflow").out
    create(place / "mine.db")
    assert said not in harness("task=save", f"track.uri=sqlite:///{place / 'mine.db'}").out
    assert said not in harness("task=save", "track=none").out
