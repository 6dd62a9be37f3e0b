"""Runs, sweeps and what was stopped are tagged with their folder in one way."""

import os
from pathlib import Path

import pytest

from harness.pipeline.environment import checkout
from harness.track import contents, killed, parent, provenance


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "s" / "now"
    folder.mkdir(parents=True)
    return folder


def test_a_folder_is_tagged_as_it_lies_below_where_it_was_started(here, tmp_path, monkeypatch):
    job = killed.known({"name": "x"}, here, {"task": "experiment"})
    kinds = (
        contents.tags({"folder": "runs/s/now"}, here),
        parent.tags(here),
        killed._tags(str(here), job, {}),
    )
    for tags in kinds:
        assert (tags["folder"], tags["directory"]) == ("runs/s/now", str(tmp_path))
        assert tags["host"] == os.uname().nodename and provenance.of(tags) == here
    monkeypatch.setenv("LOGNAME", "somebody")
    assert contents.tags({"folder": "runs/s/now"}, here)["mlflow.user"] == "somebody"
    monkeypatch.chdir("/")  # uploaded from elsewhere: the record says where it was started
    tags = contents.tags({"folder": "runs/s/now"}, here)
    assert (tags["folder"], tags["directory"]) == ("runs/s/now", str(tmp_path))


def test_a_folder_outside_of_there_is_tagged_whole(here, monkeypatch):
    monkeypatch.chdir("/usr")
    tags = parent.tags(here)
    assert tags["folder"] == str(here) and "directory" not in tags and provenance.of(tags) == here
    assert provenance.of({"folder": "/as/before"}) == Path("/as/before")


def test_the_sweep_of_another_directory_is_not_taken_for_this_one(here, tmp_path):
    """Two that are called the same below their directories, on one server."""

    class Run:
        def __init__(self, run_id: str, tags: dict[str, str]):
            self.info = type("I", (), {"run_id": run_id})
            self.data = type("D", (), {"tags": tags})

    class Client:
        def get_experiment(self, _: str) -> object:
            return type("E", (), {"lifecycle_stage": "active"})

        def search_runs(self, *_: object) -> list[Run]:
            mine = parent.tags(here)
            return [Run("theirs", {**mine, "directory": "/home/other"}), Run("mine", mine)]

    assert parent.of(Client(), "1", here) == "mine"


def test_the_code_that_was_stopped_is_known_and_asked_once(here, monkeypatch):
    """A later commit is not what ran."""
    provenance.commit.cache_clear()
    asked, run = [], provenance.subprocess.run
    monkeypatch.setattr(
        provenance.subprocess, "run", lambda *a, **k: asked.append(a) or run(*a, **k)
    )
    job = killed.known({"name": "x"}, here, {"task": "experiment"})
    for _ in range(2):
        killed.begin(str(here), **job)
    tags = killed._tags(str(here), killed._open.pop(str(here)), {})
    assert len(asked) == 1 and tags["git_commit"] == checkout()["commit"] == provenance.commit()
    assert tags["mlflow.source.git.commit"] == tags["git_commit"]
    provenance.commit.cache_clear()
    monkeypatch.setattr(provenance.subprocess, "run", lambda *a, **k: run(["git", "no-such"], **k))
    assert provenance.commit() is None and "git_commit" not in provenance.source(
        provenance.commit()
    )
    provenance.commit.cache_clear()
