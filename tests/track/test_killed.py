"""A single run that is stopped before it has a result is on the server, as `KILLED`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient
from tracking import ENV

from harness import track
from harness.snapshot.elements import MODEL
from harness.snapshot.record import NAME
from harness.track import datasets, empty_store, links
from harness.track import killed as stopped

KNOWN = ("select run_uuid, name, status from runs", "select value from tags where key = 'reason'",
         "select value from params where key = 'cache'")  # fmt: skip


def runs(store: Path, patience: float = 60) -> list[list[tuple]]:
    """What the store has once the process that records has come to its end."""
    give_up = time.monotonic() + patience
    while time.monotonic() < give_up:
        time.sleep(0.2)
        try:
            held = [sqlite3.connect(store).execute(query).fetchall() for query in KNOWN]
        except sqlite3.OperationalError:  # not there yet
            continue
        if held[0] and held[0][0][2] != "RUNNING":
            return held
    return [[], [], []]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_is_killed_there_too(tmp_path, number) -> None:
    with (tmp_path / "err").open("w") as said:
        job = subprocess.Popen(
            [sys.executable, "-m", "harness", "cache=manual", "steps=2", "prompt=text"],
            cwd=tmp_path, env=ENV, stdout=said, stderr=said,
        )  # fmt: skip
    while "transformers ..." not in (tmp_path / "err").read_text():
        assert job.poll() is None
        time.sleep(0.01)
    os.kill(job.pid, number)
    assert job.wait(60) in (143, -number)
    held, reason, cache = runs(tmp_path / "runs" / "mlflow.db")
    assert [run[1:] for run in held] == [("manual text steps=2: stopped", "KILLED")]
    assert cache == [("manual",)]
    word = "terminated" if number == signal.SIGTERM else "kill -9"
    assert word in reason[0][0]
    told = "MLflow is told that it was stopped." in (tmp_path / "err").read_text()
    assert told == (number == signal.SIGTERM)


@pytest.mark.parametrize("uri, sure", [
    (None, True), ("sqlite:///mine.db", True), ("http://127.0.0.1:5999", False), ("postgresql://u@h/d", False),
])  # fmt: skip
def test_that_a_server_is_told_is_not_said_before_it_answers(
    tmp_path, monkeypatch, uri, sure
) -> None:
    """It is asked when the process is gone; one that was away had been told, by the last line that it wrote."""
    heard = []
    recorder = SimpleNamespace(tell=lambda call, **words: heard.append(call))
    monkeypatch.setattr(track.beside, "running", lambda: recorder)
    said = track.told_to_end(tmp_path, "terminated", uri)
    assert said.endswith("stopped." if sure else ", if it answers.") and heard == ["job_stops"]


@pytest.mark.parametrize("kept, recorded", [("", True), ("ended", False), ("sealed", False)])
def test_a_job_that_came_to_an_end_was_not_stopped(tmp_path, kept, recorded) -> None:
    asked = []
    job = stopped.known({"name": "x"}, tmp_path, {"task": "experiment"})
    stopped.begin(str(tmp_path), **job)
    if kept == "ended":
        stopped.end(str(tmp_path))
    elif kept == "sealed":
        (tmp_path / NAME).touch()

    class Store:
        def killed(self, folder: Path, name: str, *_: object) -> None:
            asked.append((folder, name))

    stopped.settle(lambda config: Store(), None)
    stopped.settle(lambda config: Store(), None)
    assert asked == ([(tmp_path, "x: stopped")] if recorded else [])


@pytest.mark.parametrize("task, kept", [("evaluate", True), ("experiment", False)])
def test_an_evaluation_that_nobody_is_left_to_tell_of_goes_on_too(tmp_path, task, kept) -> None:
    job = stopped.known({"name": "x"}, tmp_path, {"task": task})
    assert ("the same command goes on from there" in job["reason"]) == kept


def test_a_stopped_evaluation_leads_to_the_run_that_went_on_from_it(tmp_path) -> None:
    """The twin: one that asked something else."""
    empty_store.put(tmp_path / "m.db")
    there = MlflowClient(f"sqlite:///{tmp_path}/m.db")
    experiment, made = there.create_experiment("e"), []
    for words in (["task=evaluate"], ["task=evaluate", "seed=2"]):
        folder = tmp_path / str(len(made))
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "overrides.yaml").write_text(json.dumps(words))
        job = stopped.known({"name": "x"}, folder, {"task": "evaluate"})
        tags = stopped._tags(str(folder), job, {})
        made.append(there.create_run(experiment, tags=tags).info.run_id)
        there.set_terminated(made[-1], "KILLED")
    links.backwards(there, experiment, "5f", {"task": "evaluate"}, tmp_path / "0")
    first, other = (there.get_run(run_id).data.tags for run_id in made)
    assert first["superseded"] == "5f" and "superseded" not in other
    assert first["mlflow.note.content"].startswith("**[Open the run that went on from there")
    assert "**stopped**" in first["mlflow.note.content"] and "went on" not in str(other)


def test_what_a_job_without_a_last_word_had_finished_is_told(tmp_path) -> None:
    told = []

    class Store:
        def killed(self, folder: Path, name: str, tags: dict[str, str], *_: object) -> None:
            told.append(tags)

    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "manifest.json").touch()
    stopped.begin(str(tmp_path), **stopped.known({"name": "x"}, tmp_path, {"task": "experiment"}))
    stopped.settle(lambda config: Store(), None)
    (tags,) = told
    assert tags["reason"].endswith(f"; kept: the finished snapshot {tmp_path / 'snapshot'}")
    assert tags["conclusion"].startswith("Its process ended"), "a sentence"
    assert f"Folder: `{tmp_path}`" in tags["mlflow.note.content"]
    gone = tmp_path / "gone"
    stopped.begin(str(gone), **stopped.known({"name": "x"}, gone, {"task": "experiment"}))
    stopped.settle(lambda config: Store(), None)
    assert "Folder:" not in told[1]["mlflow.note.content"], "it was removed: nothing was in it"
    assert tags["folder"] == str(tmp_path) and "folder" not in told[1] and "host" in told[1]


def test_what_a_job_had_read_by_then_are_its_inputs(tmp_path) -> None:
    """The twin: nothing was read."""
    told = []

    class Store:
        def killed(self, folder: Path, name: str, tags: dict[str, str], *rest: object) -> None:
            told.append((tags, rest[-1]))

    config = {"name": "x", "prompt": {"name": "text"}}
    for known in ({}, {"elements": [{"name": n, "digest": "d"} for n in (*MODEL, "token_buffer")],
                       "size": {"tokens": 7}, "model": {"option": "tiny"}, "text": {"prompt": "let k"}}):  # fmt: skip
        asked = {"task": "experiment", "prompt": "text"}
        stopped.begin(str(tmp_path), **stopped.known(config, tmp_path, asked))
        stopped.reads(str(tmp_path), known)
        stopped.settle(lambda config: Store(), None)
    (before, nothing), (tags, read) = told
    assert "model" not in before and not datasets.of(nothing, tmp_path)
    assert tags["model"].startswith("tiny-")
    (one,) = datasets.of(read, tmp_path)
    assert one["name"] == "prompt text" and '"tokens": 7' in one["profile"]
    read["config"] = {**config, "encrypt": "key"}
    assert "let k" in one["profile"] and "let k" not in str(datasets.of(read, tmp_path))


def test_of_what_is_encrypted_a_stopped_run_has_no_digest_that_somebody_could_guess() -> None:
    rows = [{"name": n, "digest": "d"} for n in (*MODEL, "token_buffer")]
    read = {"elements": rows, "text": {"prompt": "let k"}, "model": {"option": "tiny"}}
    assert stopped._clear(read, {"encrypt": "none"}) == read
    for keys in ({"encrypt": "env:K"}, {"decrypt": "env:K"}):
        kept = stopped._clear(read, keys)
        assert [row["name"] for row in kept["elements"]] == [*MODEL] and not kept["text"]
        assert kept["model"] == read["model"] and not datasets.of(
            kept | {"config": keys}, Path("gone")
        )
