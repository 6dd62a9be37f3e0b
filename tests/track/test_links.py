"""The description of a run leads to those that left what it read, and one that was audited says so."""

import re

from mlflow.tracking import MlflowClient

from harness.track import colours, experiment


def test_a_comparison_shows_what_differs_and_leads_to_both_runs(harness, place):
    runs = [harness("steps=2", f"text=let k be {seed} .", track="mlflow") for seed in (1, 2)]  # fmt: skip
    sides = [run.result["snapshot"]["path"] for run in runs]
    done = harness("task=diff", f"a={sides[0]}", f"b={sides[1]}", track="mlflow")
    told = done.result
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    mine = client.get_run(told["mlflow"]["run_id"])
    assert f"mlflow run:   {mine.info.run_id}\n" in done.out
    note = mine.data.tags["mlflow.note.content"]
    for side, run in zip("ab", runs, strict=True):
        own = run.result["mlflow"]["run_id"]
        assert f"**[Open the run that left {side}](#/experiments/1/runs/{own}?" in note
        assert f"{run.result['snapshot']['id'][:12]}..." in note
    assert len(told["differences"]) and all(d["what"] in note for d in told["differences"][:20])


def test_an_audited_run_says_what_its_audit_came_to(harness, place):
    run = harness("steps=2", track="mlflow")
    of = run.result["mlflow"]["run_id"]
    harness("task=audit", f"run={of}", track="mlflow")
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")
    (audit,) = client.search_runs(["1"], f"tags.`audit.of` = '{of}'")
    assert client.get_run(of).data.tags["audited"] == f"same (run {audit.info.run_id})"
    again = harness("task=audit", f"run={of}", track="mlflow")  # which that tag does not forge
    assert again.code == 0, again.out


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
