"""Of a tracking server an audit compares the numbers and the record's digest; the rest there is a person's own."""

import shutil

import pytest
from audited import store_of

from harness.snapshot import record
from harness.task.audit import source, sweep


@pytest.fixture
def store(recorded, runs, tmp_path):
    """A copy of the shared store, to be edited: `(configuration, client, run id)`."""
    shutil.copy(runs / "mlflow.db", tmp_path)
    return *store_of(tmp_path), record.read(recorded / "result.json")["mlflow"]["run_id"]


def named(cfg, folder):
    return [f.what.removeprefix("mlflow: ") for f in source.differences(cfg, folder)]


def test_an_honest_store_is_the_same(above, swept, store, recorded):
    """Of a run, and of the points of a sweep, those that failed too."""
    for folder in sweep.folders(swept):
        assert len(source.tracked(above[0], folder)) == 1 and named(above[0], folder) == []
    assert len(source.tracked(store[0], recorded)) == 1 and named(store[0], recorded) == []


@pytest.mark.parametrize("key", ["logits/kl_max", "size/tokens", "oracle/ratio"])
def test_a_number_is_compared(store, recorded, key):
    cfg, client, run_id = store
    client.log_metric(run_id, key, 0.125)
    assert named(cfg, recorded) == [key]
    client.delete_run(run_id)
    assert named(cfg, recorded) == [key], "of a deleted run too"


def test_another_record_under_the_same_run_is_named(store, recorded):
    cfg, client, run_id = store
    client.set_tag(run_id, "record", "another seal")
    assert named(cfg, recorded) == ["record.json: id"]


def test_what_a_person_writes_in_a_store_is_no_forgery(store, recorded):
    cfg, client, run_id = store
    client.set_tag(run_id, "outcome", "exact")
    client.log_metric(run_id, "mine/kl", 0.0)
    client.update_run(run_id, name="the one for the talk: exact")
    client.set_tag(run_id, "mlflow.note.content", "My words.")
    assert named(cfg, recorded) == []


EVALUATE = ("task=evaluate", "prompt=recall", "prompt.samples=2", "task.prunes=[none,keydiff]",
            "task.asked=[after]", "task.budgets=[0.5]", "steps=2", "name=cells")  # fmt: skip


@pytest.mark.slow
def test_a_cell_leads_to_its_evaluation(harness, place):
    run_id = harness(*EVALUATE, track="mlflow").result["mlflow"]["run_id"]
    _, client = store_of(place / "runs")
    cell = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{run_id}'")[0]
    done = harness("task=audit", f"run={cell.info.run_id}", "track=mlflow")
    assert done.code == 2 and f"task=audit run={run_id}" in done.out.replace("\n", " "), done.out
