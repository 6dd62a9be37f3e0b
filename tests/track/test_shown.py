"""The page that a run's address opens, and the columns of figures that a list of runs has."""

import json
from types import SimpleNamespace

from mlflow.tracking import MlflowClient

from harness.snapshot.words import FORCED
from harness.track import contents, experiment, parent
from harness.track import metrics as measured
from harness.track.parent import ABOVE


class Client:
    def __init__(self, metrics, runs=1):
        data = SimpleNamespace(tags={ABOVE: "0"}, params={"prune": "none"}, metrics=metrics)
        self.runs, self.view = [SimpleNamespace(data=data)] * runs, {}

    def search_runs(self, *_, **__):
        return self.runs

    def set_experiment_tag(self, _, key, value):
        self.view = json.loads(value)


def test_a_runs_address_is_its_own_page_and_an_experiments_the_list():
    one = experiment.address("http://me:secret@host:5000/", "7", "1f")
    assert one == "http://host:5000/#/experiments/7/runs/1f?workflowType=machine_learning"
    every = experiment.address("http://host:5000", "7")
    assert every.endswith("/7/runs?viewStateShareKey=harness&workflowType=machine_learning")


def test_how_many_times_faster_is_a_figure_where_its_times_say_more_than_the_machine():
    times = {"recompute": 3.0, "prefill": 2.0, "load": 0.25, "verify": 0.2, "restore": 0.05}
    told = {key: value for key, value, _ in measured.metrics({"time_s": times})}
    assert told["speed/times_faster"] == 4.0, "of two prefills the faster"
    quick = {"time_s": {key: value / 100 for key, value in times.items()}}
    assert "speed/times_faster" not in {key for key, *_ in measured.metrics(quick)}


def test_noise_that_no_chart_can_tell_from_nothing_is_not_drawn():
    curves = {"restored": {"kl": [0.0]}, "noise of one": {"kl": [1e-12, None], "max_abs_diff": [2e-6, 0.0]}}  # fmt: skip
    drawn = {key for key, *_ in measured.metrics({"curves": curves})}
    assert drawn == {"by_step/kl", "by_step/noise_max_abs_diff"}
    older = {key for key, *_ in measured.metrics({"curves": curves}, once=True)}
    assert older - drawn == {"by_step/noise_kl"}, "which an audit still compares"


def test_it_is_a_column_where_two_runs_have_it():
    for key, runs in (("logits/kl_max", 2), ("speed/times_faster", 1), ("speed/times_faster", 2)):
        experiment.show(client := Client({key: 4.0}, runs), "7")
        columns = client.view["selectedColumns"]
        shown = "metrics.`speed/times_faster`" in columns
        assert shown == (key == "speed/times_faster" and runs > 1), (key, runs)
        assert columns.index("params.`cache`") < columns.index("metrics.`logits/top1_agreement`")


def test_the_budget_of_a_pruning_is_a_parameter_also_where_it_is_the_default():
    """Or a search for a ratio would miss the run, and a column of it hold nothing."""
    tree = {"prune": {"name": "snapkv", "tokens": None, "ratio": 0.5}}
    assert dict(contents.chosen(tree, [])) == {"prune": "snapkv", "prune.ratio": "0.5"}
    tree["prune"]["tokens"] = 48
    assert dict(contents.chosen(tree, [])) == {"prune": "snapkv", "prune.tokens": "48"}
    none = {"prune": {"name": "none", "tokens": None, "ratio": None}}
    assert dict(contents.chosen(none, [])) == {"prune": "none", "prune.ratio": "1"}
    none["prune"]["ratio"] = 0.5  # typed, and not read
    told = dict(contents.chosen(none, ["prune.ratio=0.5"]))
    assert told["prune.ratio"] == "1", (
        "what it keeps, or MLflow's comparison draws it at a ratio of its own"
    )
    none["snapshot"] = "runs/a"  # which may have been pruned before
    assert dict(contents.chosen(none, [])) == {"prune": "none"}


def test_a_sweep_has_the_commit_of_its_first_point_that_has_one(tmp_path):
    for name, git in (("0", {}), ("2", {"commit": "two"}), ("10", {"commit": "ten"})):
        (tmp_path / name).mkdir()
        told = {"verdict": "exact", "environment": {"git": git}}
        (tmp_path / name / "result.json").write_text(json.dumps(told))
    assert parent.commit(tmp_path)["git_commit"] == "two"
    (tmp_path / "2" / "result.json").unlink()
    assert parent.commit(tmp_path)["git_commit"] == "ten"
    assert parent.commit(tmp_path / "10") == {}


def test_a_description_says_whose_words_it_shows(harness, place):
    """What a pruned run chooses beside another text is not what it would say; a question is no answer."""
    client = MlflowClient(f"sqlite:///{place}/runs/mlflow.db")

    def note(done):
        return client.get_run(done.result["mlflow"]["run_id"]).data.tags["mlflow.note.content"]

    pruned = harness("prune=snapkv", "prune.ratio=0.5", "steps=6", track="mlflow")
    text = pruned.result["text"]
    assert text["restored"] != text["continuation"]
    assert f"What the pruned run chooses {FORCED}: `{text['restored']!r}`" in note(pruned)
    assert f"said (full cache, never interrupted): `{text['continuation']!r}`" in note(pruned)
    harness("task=save", "text=let k be 7 .", "out=k1")
    asked = ["snapshot=k1", "text= what is k ?", "steps=3"]
    resumed = harness("task=resume", *asked, track="mlflow")
    assert "It read: `' what is k ?'`\n\nIt said: `' k is 7'`" in note(resumed)
    unjudged = harness("task=resume", *asked, "compare.limit=1", track="mlflow")
    assert unjudged.result["verdict"] == "unjudged" and "It said: `' k is 7'`" in note(unjudged)
