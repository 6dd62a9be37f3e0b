"""Runs, sweeps and what was stopped are tagged with their folder in one way."""

import os
from pathlib import Path

import pytest

from harness.pipeline.environment import checkout
from harness.track import contents, parent, place, stopped


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "s" / "now"
    folder.mkdir(parents=True)
    return folder


def test_a_folder_is_tagged_as_it_lies_below_where_it_was_started(here, tmp_path, monkeypatch):
    job = stopped.known({"name": "x"}, here, {"task": "experiment"})
    kinds = (
        contents.tags({"folder": "runs/s/now"}, here),
        parent.tags(here),
        stopped._tags(str(here), job),
    )
    for tags in kinds:
        assert (tags["folder"], tags["directory"]) == ("runs/s/now", str(tmp_path))
        assert tags["host"] == os.uname().nodename and place.of(tags) == here
    monkeypatch.setenv("LOGNAME", "somebody")
    assert contents.tags({"folder": "runs/s/now"}, here)["mlflow.user"] == "somebody"
    monkeypatch.chdir("/")  # uploaded from elsewhere: the record says where it was started
    tags = contents.tags({"folder": "runs/s/now"}, here)
    assert (tags["folder"], tags["directory"]) == ("runs/s/now", str(tmp_path))


def test_a_folder_outside_of_there_is_tagged_whole(here, monkeypatch):
    monkeypatch.chdir("/usr")
    tags = parent.tags(here)
    assert tags["folder"] == str(here) and "directory" not in tags and place.of(tags) == here
    assert place.of({"folder": "/as/before"}) == Path("/as/before")


def test_the_sweep_of_another_directory_is_not_taken_for_this_one(here, tmp_path):
    """Two that are called the same below their directories, on one server."""

    class Run:
        def __init__(self, run_id: str, tags: dict[str, str]):
            self.info = type("I", (), {"run_id": run_id})
            self.data = type("D", (), {"tags": tags})

    class Client:
        def search_runs(self, *_: object) -> list[Run]:
            mine = parent.tags(here)
            return [Run("theirs", {**mine, "directory": "/home/other"}), Run("mine", mine)]

    assert parent.of(Client(), "1", here) == "mine"


def test_the_code_that_was_stopped_is_known_and_asked_once(here, monkeypatch):
    """A later commit is not what ran."""
    place.commit.cache_clear()
    asked, run = [], place.subprocess.run
    monkeypatch.setattr(place.subprocess, "run", lambda *a, **k: asked.append(a) or run(*a, **k))
    job = stopped.known({"name": "x"}, here, {"task": "experiment"})
    for _ in range(2):
        stopped.begin(str(here), **job)
    tags = stopped._tags(str(here), stopped._open.pop(str(here)))
    assert len(asked) == 1 and tags["git_commit"] == checkout()["commit"] == place.commit()
    assert tags["mlflow.source.git.commit"] == tags["git_commit"]
    place.commit.cache_clear()
    monkeypatch.setattr(place.subprocess, "run", lambda *a, **k: run(["git", "no-such"], **k))
    assert place.commit() is None and "git_commit" not in place.source(place.commit())
    place.commit.cache_clear()
