"""What a tracking server says of a record is held to the record: the honest store is the same, one whose figures or copies
were edited is named, and what a person may write there is no forgery."""

import shutil
import sys

import pytest
from audited import store_of
from mlflow.tracking import MlflowClient

from harness import __main__ as front
from harness.snapshot import record
from harness.task import audit
from harness.task.audit import server

EVALUATE = ("task=evaluate", "prompt=recall", "prompt.samples=2", "task.prunes=[none,keydiff]",
            "task.asked=[after]", "task.budgets=[0.5]", "steps=2", "name=cells")  # fmt: skip


@pytest.fixture
def store(recorded, runs, tmp_path):
    """A copy of the shared store, to be edited."""
    shutil.copy(runs / "mlflow.db", tmp_path)
    return store_of(tmp_path)


def compared(cfg, folder, **changed):
    """`(names of the differences, Seen)` of the run in `folder`. changed: fields of its result."""
    seen = server.Seen()
    result = {**record.read(folder / "result.json"), **changed}
    found = server.point(cfg, folder, result, record.read(folder / record.NAME), seen)
    return [f.what.removeprefix("mlflow: ") for f in found], seen


def summed(cfg, sweep):
    """The same of a sweep's own run."""
    seen = server.Seen()
    found = server.sweep(cfg, sweep, audit._points(sweep), None, seen)
    return [f.what.removeprefix("mlflow: ") for f in found], seen


def run_of(folder):
    return record.read(folder / "result.json")["mlflow"]["run_id"]


def test_an_honest_store_is_the_same(above, swept):
    """Of a sweep, and of its points, those that failed too; MLflow's copies were compared."""
    cfg, _ = above
    for folder in audit._points(swept):
        named, seen = compared(cfg, folder)
        assert (named, seen.runs, seen.left, seen.notes) == ([], 1, {}, [])
        assert seen.copies >= 5
    named, seen = summed(cfg, swept)
    assert (named, seen.runs, seen.left, seen.notes) == ([], 1, {}, []) and seen.copies > 1


def test_an_honest_store_of_a_run_is_the_same(store, recorded):
    named, seen = compared(store[0], recorded)
    assert (named, seen.runs, seen.left, seen.notes) == ([], 1, {}, []) and seen.copies > 10


@pytest.mark.slow
def test_a_sweep_that_was_resumed_is_the_same(harness, place, monkeypatch):
    """With a pruned point and a failed one, each of which has an earlier run that was deleted."""
    done = harness(
        "-m",
        "steps=2",
        "cache=dynamic",
        "prune=sink_window",
        "prompt.batch=1,99",
        "name=some",
        track="mlflow",
    )
    assert done.out.count("dashboard:    harness dashboard\n") == 1
    (sweep,) = (place / "runs" / "some").iterdir()
    shutil.rmtree(sweep / "0")
    monkeypatch.setattr(sys, "argv", ["harness", "-m", f"resume={sweep}"])
    assert front.main() == done.code == 2, done.out
    assert (sweep / "0" / "result.json").is_file()
    cfg, client = store_of(place / "runs")
    for folder in audit._points(sweep):
        assert compared(cfg, folder)[0] == []
    named, seen = summed(cfg, sweep)
    assert (named, seen.left, seen.notes) == ([], {}, [])
    client.delete_run(run_of(sweep / "1"))
    gone = [compared(cfg, sweep / point)[1].deleted for point in "01"]
    assert gone == [[], [".../1"]], "that somebody has deleted one is told"


FORGED = {
    "logits/kl_max": lambda c, r: c.log_metric(r, "logits/kl_max", 0.0),
    "by_step/max_abs_diff": lambda c, r: c.log_metric(r, "by_step/max_abs_diff", 0.0, step=2),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_what_states_a_result_is_compared(store, recorded, what):
    cfg, client = store
    FORGED[what](client, run_of(recorded))
    assert compared(cfg, recorded)[0] == [what]


def test_a_difference_says_what_the_server_says_and_what_the_record_gives(store, recorded):
    cfg, client = store
    client.log_metric(run_of(recorded), "size/tokens", 7.0)
    result, sealed = (record.read(recorded / n) for n in ("result.json", record.NAME))
    (found,) = server.point(cfg, recorded, result, sealed)
    tokens = float(result["size"]["tokens"])
    said = f"MLflow's metric size/tokens is 7, the record gives {tokens}"
    assert (found.recorded, found.found, found.explanation) == (tokens, 7.0, said)


def test_of_a_result_that_cannot_be_read_its_figures_in_a_store_are_no_further_differences(
    store, recorded
):
    """The twin: an edited one, of which each is another for its own reason."""
    (cfg, _), seen = store, server.Seen()
    found = [*server.point(cfg, recorded, {}, record.read(recorded / record.NAME), seen)]
    assert not found and seen.left == {server.UNREAD: "its result.json cannot be read"}
    assert compared(cfg, recorded, metrics={"kl_max": 1.0})[0]


def test_what_a_person_writes_in_a_store_is_no_forgery(store, recorded):
    cfg, client = store
    run_id = run_of(recorded)
    client.set_tag(run_id, "outcome", "exact")
    client.log_metric(run_id, "mine/kl", 0.0)
    client.log_param(run_id, "mine", "exact")
    client.update_run(run_id, name="the one for the talk")
    client.set_tag(run_id, "mlflow.note.content", "My words.")
    named, seen = compared(cfg, recorded)
    assert (named, seen.notes, seen.left) == ([], [], {})


@pytest.mark.parametrize("what, value", [
    ("sweep/failed", 0.0), ("best/stored_bytes", 9.0), pytest.param("sweep/largest_max_abs_diff", 9.0, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_sweeps_own_run_is_compared(above, swept, what, value):
    cfg, client = above
    client.log_metric(record.read(swept / "sweep.json")["mlflow"]["run_id"], what, value)
    assert summed(cfg, swept)[0] == [what]


def test_the_files_of_a_sweeps_run_alone_are_told_what_they_are(above, swept, harness, place):
    _, client = above
    run_id = record.read(swept / "sweep.json")["mlflow"]["run_id"]
    (place / "downloaded").mkdir()
    client.download_artifacts(run_id, "", str(place / "downloaded"))
    told = ("task=audit", "run=downloaded", f"runs_dir={place}")
    done = harness(*told, "track=mlflow")
    assert done.code == 2 and f"task=audit run={run_id}" in done.out, done.out
    done = harness(*told)
    assert done.code == 2 and "none of its points" in done.out.replace("\n", " "), done.out


def test_an_evaluation_is_compared_with_its_cells_and_its_copies(harness, place):
    """As it is, it is the same; a cell's share, a copy, and its own outcome are named; a cell's id leads to it."""
    (run,) = harness(*EVALUATE, track="mlflow").folders
    run_id = run_of(run)
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/runs/mlflow.db")
    same = harness("task=audit", f"run={run_id}", "name=same", "track=mlflow")
    assert same.code == 0, same.out
    told = record.read(next(place.glob("runs/same/*/audit.json")))
    assert told["tracked"]["runs"] == 3 and told["tracked"]["copies"] > 8 and not told["uncompared"]
    assert f"copies of {told['tracked']['copies']} files" in same.out.replace("\n", " ")
    assert told["tracked"]["notes"] == []
    assert "dashboard:    harness dashboard\n" in same.out
    assert client.search_runs(["1"], "tags.`audit.outcome` = 'same'")
    (folder,) = place.glob("runs/same/*")
    assert compared(store_of(place / "runs")[0], folder)[0] == []

    cell, *_ = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{run_id}'")
    done = harness("task=audit", f"run={cell.info.run_id}", "track=mlflow")
    assert done.code == 2 and "is a cell" in done.out, done.out
    assert f"task=audit run={run_id}" in done.out.replace("\n", " "), done.out

    client.log_metric(cell.info.run_id, "answers/contains", 0.875)
    served = place / "runs" / "artifacts" / run_id / "artifacts"
    (served / "report.html").write_text("bit for bit")
    (served / "theirs.html").write_text("a note of somebody's")
    answers = (served / "answers.jsonl").read_text()
    (served / "answers.jsonl").write_text(answers.replace("false", "true") + "\n")
    done = harness("task=audit", f"run={run_id}", "name=forged", "track=mlflow")
    assert done.code == 1, done.out
    found = record.read(next(place.glob("runs/forged/*/audit.json")))["differences"]
    assert {d["what"] for d in found} == {
        f"mlflow: {cell.info.run_name}: answers/contains",
        "mlflow: artifact report.html",
        "mlflow: artifact answers.jsonl",
    }


@pytest.mark.slow
def test_what_a_grid_of_evaluations_came_to_is_derived_from_its_points(harness, place):
    """Nothing to note where it is as it was told; who makes more points safe is found out."""
    few = [word for word in EVALUATE if not word.startswith(("task.budgets", "steps"))]
    folders = harness("-m", *few, "steps=4", "task.budgets=[0.25],[0.75]", track="mlflow").folders
    sweep, (cfg, client) = folders[0].parent, store_of(place / "runs")
    found, seen = summed(cfg, sweep)
    assert (found, seen.notes, seen.runs) == ([], [], 1)
    run_id = record.read(sweep / "mlflow.json")["run_id"]
    assert "of 2 safe" in client.get_run(run_id).data.tags["outcome"]
    client.log_metric(run_id, "best/contains", 0.123)
    assert summed(cfg, sweep)[0] == ["best/contains"]
