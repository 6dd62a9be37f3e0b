"""The page that a run's address opens, and the columns of figures that a list of runs has."""

import json
from types import SimpleNamespace

from harness.track import contents, experiment
from harness.track.parent import ABOVE


class Client:
    def __init__(self, metrics):
        data = SimpleNamespace(tags={ABOVE: "0"}, params={"prune": "none"}, metrics=metrics)
        self.runs, self.view = [SimpleNamespace(data=data)], {}

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
    told = {key: value for key, value, _ in contents.metrics({"time_s": times})}
    assert told["speed/times_faster"] == 4.0, "of two prefills the faster"
    quick = {"time_s": {key: value / 100 for key, value in times.items()}}
    assert "speed/times_faster" not in {key for key, *_ in contents.metrics(quick)}


def test_it_is_a_column_where_any_run_has_it():
    for metrics in ({"logits/max_ulp": 1.0}, {"speed/times_faster": 4.0}):
        experiment.show(client := Client(metrics), "7")
        columns = client.view["selectedColumns"]
        assert ("metrics.`speed/times_faster`" in columns) == ("speed/times_faster" in metrics)
        assert columns.index("metrics.`logits/max_ulp`") < columns.index("params.`cache`")


def test_the_charts_begin_with_what_a_verdict_is_about():
    """An audit's charts of zeros would be first by the alphabet, and a section that no run has would be empty."""
    keys = ("audit/points", "answers/kl", "by_step/kl", "logits/kl_max", "system/cpu")
    experiment.show(client := Client(dict.fromkeys(keys, 0.0)), "7")
    sections = client.view["compareRunSections"]
    assert [section["name"] for section in sections] == ["logits", "by_step", "answers", "audit"]
    assert client.view["isAccordionReordered"], "or MLflow sorts them"
    assert client.view["compareRunCharts"] == [], "none means that it makes sections of its own"
    experiment.show(client := Client({}), "7")
    assert "compareRunSections" not in client.view
