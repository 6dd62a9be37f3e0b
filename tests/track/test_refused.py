"""What the server is told of a run that was refused."""

import re

from mlflow.tracking import MlflowClient

from harness.pipeline.environment import checkout
from harness.snapshot import record
from harness.track import contents, datasets, description

STOPPED = "tags.reason LIKE '%'"


def test_a_refused_run_has_its_commit_and_what_it_had_read(harness, place):
    """The model that is loaded, which is another than the snapshot's; of a damaged snapshot both."""
    there = MlflowClient(tracking_uri=f"sqlite:///{place}/runs/mlflow.db")

    def run(*words, code):
        done = harness(*words, track="mlflow")
        assert done.code == code, done.out
        assert re.search(r"^dashboard: .*harness dashboard", done.out, re.MULTILINE)
        run = there.get_run(record.read(done.folders[-1] / "result.json")["mlflow"]["run_id"])
        (found,) = there.search_runs(
            ["1"], f"{STOPPED} and attributes.run_id = '{run.info.run_id}'"
        ) or [None]
        assert (found is not None) == (code == 3), "the README's recipe"
        assert run.data.tags["git_commit"] == checkout()["commit"]
        (told,) = (d.dataset.digest for d in run.inputs.dataset_inputs)
        (model,) = (m.model_id for m in run.inputs.model_inputs)
        assert there.get_logged_model(model).name == run.data.tags["model"]
        return run, told, model

    saved, read, model = run("task=save", "out=a", code=0)
    refused, its, other = run("task=resume", "snapshot=a", "dtype=float64", "steps=2", code=3)
    assert its == read and other != model
    assert refused.inputs.dataset_inputs[0].dataset.name == "prompt snapshot"
    done = harness("task=resume", "snapshot=a", "model=tiny_gpt2", "steps=2", track="mlflow")
    unread = there.get_run(record.read(done.folders[-1] / "result.json")["mlflow"]["run_id"])
    assert done.code == 3 and [d.dataset.digest for d in unread.inputs.dataset_inputs] == [read]
    assert not unread.inputs.model_inputs, "none was loaded"
    for one in (refused, unread):
        assert one.data.tags["parent_snapshot_id"] == saved.data.tags["snapshot_id"]
    damaged, its, same = run("fault=bit_flip", "steps=2", code=3)
    assert its == read and same == model
    assert "parent_snapshot_id" not in damaged.data.tags, "it is its own"
    for told in (refused, damaged):
        said = told.data.tags["conclusion"]
        assert said.startswith("Not restored: ") and "element " in said and str(place) not in said
        reason = told.data.tags["reason"]
        assert reason.endswith(".") and ": " in reason and "\n" not in reason
        assert told.data.tags["mlflow.note.content"].startswith(f"**refused**: {said}")


def test_of_what_is_known_of_a_refusal_each_stands_alone(tmp_path):
    """And of one of which nothing is known, its reason is what it came to."""
    known = {"elements": [{"name": "token_buffer", "digest": "a" * 64}], "size": {"tokens": 9}}
    result = {"verdict": "refused", "reason": "x went away", "conclusion": "Not restored: x.",
              "task": "resume", "git": {"commit": "c0"}, "known": known}  # fmt: skip
    assert [d["digest"] for d in datasets.of(result, tmp_path)] == ["a" * 32]
    tags = contents.tags(result, tmp_path)
    assert "model" not in tags and tags["git_commit"] == tags["mlflow.source.git.commit"] == "c0"
    assert tags["conclusion"] == "Not restored: x."
    assert datasets.of({**result, "known": {}}, tmp_path) == []
    assert "x went away" in description.note(result, "1f", tmp_path)


def test_the_reason_is_a_whole_sentence(tmp_path):
    told = {
        "verdict": "refused",
        "reason": {"code": "snapshot_invalid", "args": {"faults": ["a", "b"]}},
    }
    said = "the snapshot is not valid, nothing was restored from it: a, b."
    assert contents.tags(told, tmp_path)["reason"] == said
    told["reason"] = "text= is empty.\nGive one."
    assert contents.tags(told, tmp_path)["reason"] == "text= is empty."
