"""What a list of runs shows: the columns of what varies, and answers to the recipes of the page."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from stores import client

from harness.track import experiment

ROOT = Path(__file__).resolve().parents[2]


def test_every_recipe_of_the_page_finds_what_it_says(swept, recorded, runs):
    page = (ROOT / "harness" / "track" / "README.md").read_text()
    recipes = [
        a or b for a, b in re.findall(r"^\| (?:`` (.+?) ``|`(\w+\..+?)`) \|", page, re.MULTILINE)
    ]
    assert len(recipes) >= 6 and "tags.`audit.outcome` = 'differs'" in recipes
    there = client(runs)
    (held,) = [e for e in there.search_experiments() if e.name == "harness"]
    counted = {
        r: len(there.search_runs([held.experiment_id], r.replace("PARENT", "x"))) for r in recipes
    }
    assert counted["attributes.status = 'FAILED'"] >= 4  # three points and their sweep
    served = "tags.`cache.served` = 'manual' and metrics.`size/stored_bytes` < 1000000"
    found = there.search_runs([held.experiment_id], served)
    assert counted[served] and "auto" in {run.data.params["cache"] for run in found}
    assert counted["tags.kind = 'sweep summary'"] >= 1


def test_the_view_has_the_parameters_that_vary():
    grid = [{"model": "tiny", "prune": p, "prune.ratio": r, "steps": "8", "text": p + r}
            for p in ("random", "keydiff", "snapkv") for r in ("0.25", "0.5")]  # fmt: skip
    assert experiment.varied(grid) == ["prune", "prune.ratio"]
    assert experiment.varied([*grid, {"seed": "1"}]) == ["prune", "prune.ratio"], (
        "nothing beside it"
    )
    wide = [{f"key{i}": str(j) for i in range(9)} | {"seed": str(j % 2)} for j in range(3)]
    assert len(experiment.varied(wide)) == experiment.MOST
    assert experiment.varied(grid[:1]) == [*experiment.USUAL]
    view = json.loads(experiment.view(["prune.ratio"]))
    order, widths = view["columnOrder"], view["columnWidths"]
    seen = [key for key in order if not key.startswith("params.")]
    assert order.index("params.`prune.ratio`") < order.index("metrics.`oracle/ratio`")
    assert seen[:2] == [*experiment.HELD], "the name and when it began stay at the left"
    wide = sum(widths[key] for key in seen if key != "attributes.`Created`")
    assert wide + 100 < 1280, "every figure and a parameter are in sight of a window 1600 wide"
    some = json.loads(experiment.view(["prune", "prune.ratio", "cache", "seed"]))["columnWidths"]
    first = [*experiment.HELD, "tags.`outcome`", *(f"params.`{k}`" for k in ("prune", "prune.ratio", "cache")),
             *(f"metrics.`{k}`" for k in experiment.FIGURES[:2])]  # fmt: skip
    assert 73 + sum(some[key] for key in first) <= 1026, "which a window 1280 wide has"


def test_what_a_sweep_varied_is_a_column_whatever_else_varies():
    wide = [{f"key{i}": str(j) for i in range(9)} for j in range(9)]
    told = [
        *wide,
        {"at": "1", "quantize": "none"},
        {"at": "2", "quantize": "int4", "fault": "none"},
    ]
    found = [
        SimpleNamespace(data=SimpleNamespace(params=p, tags={"mlflow.parentRunId": "x"} if "at" in p else {}, metrics={}))
        for p in told
    ]  # fmt: skip
    assert experiment.swept(found) == ["quantize", "at"], "in the order of a name"
    chosen = experiment.varied(told, ["at"])
    assert chosen[:2] == ["at", "quantize"] and len(chosen) == experiment.MOST
    assert "fault" not in chosen
    kept: list = []
    for run in found[:2]:
        run.data.metrics = {"best/contains": 1.0}
    asked = SimpleNamespace(
        search_runs=lambda *_, **__: found, set_experiment_tag=lambda *told: kept.append(told)
    )
    experiment.show(asked, "1")
    columns = json.loads(kept[0][2])["columnOrder"]
    assert {"params.`at`", "params.`quantize`", "metrics.`best/contains`"} <= {*columns}


def test_the_figures_of_a_list_are_those_of_the_runs_that_are_in_sight():
    """What is below a sweep is folded: its own columns would be empty for all that is seen."""

    def run(metrics, above=""):
        tags = {"mlflow.parentRunId": above} if above else {}
        return SimpleNamespace(data=SimpleNamespace(tags=tags, metrics=dict.fromkeys(metrics, 1.0)))

    point = run(["logits/top1_agreement", "size/kv_bytes"], "x")
    sweep, single = run(["best/kv_bytes", "best/top1_agreement"]), run(["size/kv_bytes"])
    assert experiment.figures([sweep, sweep, point, point]) == [
        "best/kv_bytes",
        "best/top1_agreement",
    ]
    assert experiment.figures([sweep, point, single]) == ["size/kv_bytes"]
    assert experiment.figures([sweep, point]) == ["best/kv_bytes", "best/top1_agreement"]
    assert experiment.figures([point]) == experiment.figures([]) == [*experiment.FIGURES]


def test_the_sentence_stays_in_sight_however_many_figures_there_are():
    """What is more than a window has room for comes after it."""
    figures = [*experiment.FIGURES, *experiment.MEASURED]
    columns = json.loads(experiment.view(["prune"], figures))["selectedColumns"]
    told = columns.index("tags.`conclusion`")
    assert columns[told - experiment.ROOM : told] == [
        f"metrics.`{key}`" for key in figures[: experiment.ROOM]
    ]
    assert {*columns[told:]} >= {f"metrics.`{key}`" for key in figures[experiment.ROOM :]}


def test_what_single_runs_differ_in_is_a_column_however_much_a_sweep_varied():
    def run(params, above=""):
        tags = {"mlflow.parentRunId": above} if above else {}
        return SimpleNamespace(data=SimpleNamespace(params=params, tags=tags, metrics={}))

    wide = [run({f"key{i}": str(j) for i in range(9)} | {"model": str(j)}, "x") for j in (1, 2)]
    single = [run({"dtype": d, "device": "cpu", "model": "tiny"}) for d in ("float32", "bfloat16")]
    runs = [*wide, *single]
    assert experiment.apart(runs) == ["dtype"] and experiment.apart(wide) == []
    told = experiment.varied((r.data.params for r in runs), experiment.swept(runs), ["dtype"])
    assert told == ["model", *(f"key{i}" for i in range(6)), "dtype"]
    assert experiment.varied([], ["dtype", *"abcdefg"], ["dtype"]) == ["dtype", *"abcdefg"]


@pytest.mark.slow
def test_columns_are_chosen_with_no_sweep_and_before_a_dashboard_is_opened(harness, place):
    for dtype in ("float32", "bfloat16"):
        harness("steps=1", f"dtype={dtype}", track="mlflow")
    (held,) = [e for e in client(place / "runs").search_experiments() if e.name == "harness"]
    columns = json.loads(held.tags[experiment.VIEW])["columnOrder"]
    assert "params.`dtype`" in columns
    assert columns.index("params.`dtype`") < columns.index("metrics.`oracle/ratio`")
