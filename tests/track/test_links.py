"""The description of a run leads to those that left what it read, and one that was audited says so."""

import json
import re
import shutil

import pytest
from mlflow.tracking import MlflowClient

from harness.track import colours, experiment


def test_a_comparison_shows_what_differs_and_leads_to_both_runs(harness, place):
    runs = [harness("steps=2", f"text=let k be {seed} .", track="mlflow") for seed in (1, 2)]  # fmt: skip
    sides = [run.result["snapshot"]["path"] for run in runs]
    done = harness("task=diff", f"a={sides[0]}", f"b={sides[1]}", track="mlflow")
    told = done.result
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    mine = client.get_run(told["mlflow"]["run_id"])
    assert f"mlflow run:   harness dashboard run={mine.info.run_id}\n" in done.out
    note = mine.data.tags["mlflow.note.content"]
    for side, run in zip("ab", runs, strict=True):
        own = run.result["mlflow"]["run_id"]
        assert f"**[Open the run that left {side}](#/experiments/1/runs/{own}?" in note
        assert f"{run.result['snapshot']['id'][:12]}..." in note
    assert len(told["differences"]) and all(d["what"] in note for d in told["differences"][:20])


def test_of_runs_that_left_the_same_state_the_one_is_meant_whose_folder_was_read(harness, place):
    """The twin's folder is nowhere on the server: then it is one of those that left the same."""
    first, later = (harness("steps=2", f"cache={c}", track="mlflow") for c in ("cloned", "manual"))
    assert first.result["snapshot"]["id"] == later.result["snapshot"]["id"]
    shutil.copytree(first.result["snapshot"]["path"], place / "copied")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    for snapshot, said, of in (
        (first.result["snapshot"]["path"], "the run that left its snapshot", first),
        (later.result["snapshot"]["path"], "the run that left its snapshot", later),
        ("copied", "a run that left the same state as its snapshot", later),
    ):
        done = harness("task=prune", f"snapshot={snapshot}", "prune=knorm", track="mlflow")
        note = client.get_run(done.result["mlflow"]["run_id"]).data.tags["mlflow.note.content"]
        assert f"[Open {said}](#/experiments/1/runs/{of.result['mlflow']['run_id']}?" in note


@pytest.mark.slow
def test_a_sweep_of_several_questions_names_the_first_marked_point_and_has_no_figures_of_it(
    harness, place
):
    """The twin asks one: its best point has figures."""
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    for seeds, many in (("1,2", " (and 1 more)"), ("1", "")):
        harness("-m", "prune=knorm,snapkv", f"seed={seeds}", "steps=4", track="mlflow")
        run = client.search_runs(["1"], "tags.kind = 'sweep summary'")[0]
        assert run.data.tags["best"].endswith(many), run.data.tags["best"]
        assert any(key.startswith("best/") for key in run.data.metrics) is not bool(many)
        assert (
            f"[Open the {'first ' * bool(many)}marked point]"
            in run.data.tags["mlflow.note.content"]
        )


def test_an_audited_run_says_what_its_audit_came_to(harness, place):
    run = harness("steps=2", track="mlflow")
    of = run.result["mlflow"]["run_id"]
    harness("task=audit", f"run={of}", track="mlflow")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    (audit,) = client.search_runs(["1"], f"tags.`audit.of` = '{of}'")
    assert client.get_run(of).data.tags["audited"] == f"same (run {audit.info.run_id})"
    again = harness("task=audit", f"run={of}", track="mlflow")  # which that tag does not forge
    assert again.code == 0, again.out


def test_an_edited_copy_says_nothing_of_the_run_itself_and_is_audited_again_by_its_own_command(
    harness, place
):
    run = harness("steps=2", track="mlflow")
    of = run.result["mlflow"]["run_id"]
    copied = place / "copied"
    shutil.copytree(run.result["folder"], copied)
    told = json.loads((copied / "result.json").read_text())
    (copied / "result.json").write_text(json.dumps({**told, "verdict": "exact"}))
    assert harness("task=audit", f"run={copied}", track="mlflow").code == 1
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    assert "audited" not in client.get_run(of).data.tags
    (audit,) = client.search_runs(["1"], f"tags.`audit.of` = '{of}'")
    note = audit.data.tags["mlflow.note.content"]
    assert f"run={copied}" in note and f"run={of}" not in note


def test_what_was_stopped_before_its_end_has_nothing_to_audit(harness, place):
    """By its id and by its folder; a record whose seal is gone differs."""
    run = harness("steps=2", track="mlflow")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    left = place / "runs" / "left"
    killed = client.create_run("1", tags={"folder": "runs/left", "directory": str(place)})
    gone = client.create_run("1")  # with its folder
    (left / ".hydra").mkdir(parents=True)
    for which in (killed.info.run_id, gone.info.run_id, left):
        done = harness("task=audit", f"run={which}", track="mlflow")
        assert done.code == 2, done.out
        assert "stopped before it had a result: there is nothing to audit." in done.out
    (run.folders[0] / "record.json").unlink()
    run_id = run.result["mlflow"]["run_id"]
    assert harness("task=audit", f"run={run_id}", track="mlflow").code == 1


@pytest.mark.slow
def test_a_point_that_could_not_begin_is_audited_by_the_page_that_it_left(harness, place):
    swept = harness("-m", "steps=1", "prune=none,keydiff", "prune.ratio=0.5,7", track="mlflow")
    assert swept.code == 2
    (table,) = place.glob("runs/*/*/sweep.csv")
    done = harness("task=audit", f"run={table.parent}", track="mlflow")
    assert done.code == 0, done.out
    page = (table.parent / "3" / "report.html").read_text()
    assert "could not begin" not in page and "keydiff" in page.partition("<h1>")[2].partition("</h1>")[0]  # fmt: skip


def test_a_sweep_with_refused_points_says_so_first(harness, place):
    swept = harness("-m", "steps=1", "fault=none,layer_swap", "cache=manual,view", track="mlflow")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    (above,) = client.search_runs(["1"], "tags.kind = 'sweep summary'")
    assert swept.code == 3
    told = above.data.tags["conclusion"]
    assert told.startswith("Damaged on purpose: 2 points, all noticed (2 refused). Without damage")
    assert "Not as required: 2 refused of 4 points (" in told


def test_runs_side_by_side_have_colours_of_their_own(harness, place):
    harness("-m", "steps=1", "seed=1,2,3", track="mlflow")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    points = client.search_runs(["1"], "tags.`sweep.point` LIKE '%'")
    given = [run.data.tags[colours.COLOUR] for run in points]
    assert len(given) == len(set(given)) == 3
    assert len(set(colours.EACH)) == len(colours.EACH) and colours.tag("first") == {}


def test_an_experiment_that_is_made_says_what_it_is_and_how_it_is_searched(harness, place):
    harness("steps=1", track="mlflow")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    about = client.get_experiment("1").tags[experiment.NOTE]
    for asked in re.findall("`(.+)`:", about):
        client.search_runs(["1"], asked)  # which it takes
    client.set_experiment_tag("1", experiment.NOTE, "mine")
    harness("steps=1", track="mlflow")
    assert client.get_experiment("1").tags[experiment.NOTE] == "mine"
