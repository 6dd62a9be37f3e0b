"""What a tracked run consists of besides metrics: parameters, inputs, answers to the recipes of the page."""

import json
import re
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import mlflow
import pytest
from mlflow.store.tracking.dbmodels.models import SqlDataset
from mlflow.tracking import MlflowClient
from sqlalchemy import event
from sqlalchemy.orm import Session

from harness import track
from harness.snapshot import record
from harness.snapshot.digest import digest_bytes
from harness.snapshot.result import outcome
from harness.track import contents, datasets, experiment, inputs, models, names, parts
from harness.track.usage import LONGER, Watch

ROOT = Path(__file__).resolve().parents[2]


def client(runs: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")


def tracked(swept: Path, runs: Path, point: str):
    run_id = record.read(swept / point / "result.json")["mlflow"]["run_id"]
    return client(runs).get_run(run_id)


def test_a_run_names_its_prompt_and_its_model_with_their_digests(swept, runs):
    elements = {
        e["name"]: e["digest"] for e in record.read(swept / "0" / "result.json")["elements"]
    }
    run = tracked(swept, runs, "0")
    (prompt,) = [i.dataset for i in run.inputs.dataset_inputs]
    assert prompt.name.startswith("prompt ") and elements["token_buffer"].startswith(prompt.digest)
    (given,) = run.inputs.model_inputs
    model = client(runs).get_logged_model(given.model_id)
    assert model.tags["element.attention_weights"] == elements["attention_weights"]
    assert model.status.value == "READY" and model.name.startswith("tiny-")
    shape = {"architecture": "LlamaForCausalLM", "layers": "2", "heads": "4", "dtype": "float32"}
    assert model.params.items() >= shape.items() and int(model.params["parameters"]) > 500_000
    assert "layers 2" in model.tags["mlflow.note.content"]
    again = tracked(swept, runs, "2").inputs.model_inputs[0].model_id
    assert again == given.model_id  # one model for all runs of it
    above = record.read(swept / "sweep.json")["mlflow"]["run_id"]
    shared = client(runs).get_run(above).inputs
    assert [m.model_id for m in shared.model_inputs] == [given.model_id]


@pytest.mark.parametrize("other, sets, models", [("0", 1, 1), ("prompt", 0, 1), ("model", 1, 0)])
def test_a_sweep_has_read_what_all_its_points_have_read(swept, tmp_path, other, sets, models):
    settings = SimpleNamespace(name="mlflow", uri=None, experiment="e", artifact_limit_mb=0.0)
    ids = []
    for point, changed in (("0", ""), ("1", other)):
        folder = tmp_path / point
        shutil.copytree(swept / "0", folder, ignore=shutil.ignore_patterns("snapshot"))
        result = record.read(folder / "result.json") | {"mlflow": None}
        for row in result["elements"]:
            if row["name"] == {"prompt": "token_buffer", "model": "attention_weights"}.get(changed):
                row["digest"] = "0" * 64
        ids.append(track.log(settings, str(tmp_path), folder, result, "x")[0]["run_id"])
    there = client(tmp_path)
    place = there.get_run(ids[0]).info.experiment_id
    above = there.create_run(place).info.run_id
    points = [run for run in there.search_runs([place]) if run.info.run_id in ids]
    for _ in range(2):  # the second time adds nothing
        inputs.share(there, above, [*points, there.get_run(above)])
    shared = there.get_run(above).inputs
    assert (len(shared.dataset_inputs), len(shared.model_inputs)) == (sets, models)


def test_what_was_read_is_named_and_not_an_option_that_was_not(harness, place):
    asked = "prompt=recall", "prompt.samples=2", "task.prunes=[keydiff]", "task.budgets=[0.5]"
    runs = [
        harness(*words, track="mlflow").folders[-1]
        for words in (("task=evaluate", *asked, "steps=4"), ("text=let k be 5 .", "steps=2"))
    ]
    evaluated, said = (tracked(run.parent, place / "runs", run.name) for run in runs)
    sets = [run.inputs.dataset_inputs[0].dataset for run in (evaluated, said)]
    assert [d.name for d in sets] == ["prompt recall", "prompt text"]
    questions = (runs[0] / "questions.jsonl").read_bytes()
    assert digest_bytes(questions).startswith(sets[0].digest)
    assert json.loads(sets[0].profile) == {"questions": 2}
    read = [mlflow.data.get_source(one)._tags for one in sets]  # by MLflow's own means
    assert read[1].keys() - datasets.MADE.keys() == {"text", "tokenizer"}
    assert read[1]["text"] == "let k be 5 ." and read[0]["prompt"]["name"] == "recall"
    assert said.data.params["prompt"] == "text"
    models = {run.inputs.model_inputs[0].model_id for run in (evaluated, said)}
    assert len(models) == 1
    below = f"tags.`mlflow.parentRunId` = '{evaluated.info.run_id}'"
    there = client(place / "runs")
    cells = {c.info.run_name: c.info.run_id for c in there.search_runs(["1"], below)}
    assert cells.keys() == {f"{n}, asked {w}" for n in ("full cache", "keydiff 50%") for w in ("before", "after")}  # fmt: skip
    cell = there.get_run(cells["keydiff 50%, asked after"])
    for key in ("folder", "directory", "host"):
        assert cell.data.tags[key] == evaluated.data.tags[key], "where its files are"
    for key in ("task", "git_commit", "mlflow.source.name", "model"):
        assert cell.data.tags[key] == evaluated.data.tags[key], "what made it"
    whole = there.get_run(cells["full cache, asked after"]).data.params
    assert whole["prune"] == "none" and "prune.ratio" not in whole, "it has no budget"
    page = there.get_logged_model(*models)
    assert not page.metrics, "a run's page would show its model's name beside each of these"
    assert f"tags.model = '{page.name}'" in page.tags["mlflow.note.content"]
    own = {"prune": "keydiff", "prune.ratio": "0.5", "quantize": "none", "task.asked": "after"}
    assert cell.data.params.items() >= own.items() and "task.prunes" not in cell.data.params
    for key in ("model", "prompt", "seed", "steps", "dtype", "task"):
        assert cell.data.params[key] == evaluated.data.params[key]
    several = {
        "task.asked": "after, before",
        "prune": "keydiff",
        "prune.ratio": "0.5",
        "quantize": "none",
        "cache": "auto",
    }
    assert evaluated.data.params.items() >= several.items(), "what it evaluated"
    assert not [key for key in evaluated.data.tags if key.startswith(("option.", "element."))]
    assert cell.inputs.dataset_inputs[0].dataset.digest == sets[0].digest
    assert {cell.inputs.model_inputs[0].model_id} == models
    found = there.search_runs(
        ["1"], f"params.prune = 'keydiff' and params.`prune.ratio` = '0.5' and {below}"
    )
    assert len(found) == 2
    figures = evaluated.data.metrics
    assert {"full/contains", "full/kv_bytes", "full/perplexity"} <= figures.keys()
    sections = {key.partition("/")[0] for key in figures}
    assert not sections & {"answers", "cells"}, "the last cell's would pose as the run's"


def test_a_key_of_an_option_is_a_parameter_of_the_parts_that_have_the_option():
    above = {"task": "evaluate", "task.prunes": "[snapkv,tova]", "prune": "snapkv", "prune.window": "8", "seed": "1"}  # fmt: skip
    told = [parts.parameters({"params": {"prune": n}}, above) for n in ("snapkv", "tova")]
    assert told[0] == {"task": "evaluate", "prune": "snapkv", "prune.window": "8", "seed": "1"}
    assert told[1] == {"task": "evaluate", "prune": "tova", "seed": "1"}
    assert parts.parameters({}, above) == {}, "a fault has a model of its own"


def test_the_parameters_of_a_task_that_takes_several_are_those():
    task = {"name": "evaluate", "prunes": ["none", "snapkv", "tova"], "budgets": [0.25, 0.5], "quantizers": ["int8"]}  # fmt: skip
    tree = {"task": task | {"caches": []}, "prune": {"name": "snapkv", "window": 8, "ratio": 0.5},
            "quantize": {"name": "none"}, "cache": {"name": "auto"}}  # fmt: skip
    told = dict(contents.chosen(tree, ["prune.window=8"]))
    assert told == {
        "task": "evaluate", "prune": "none, snapkv, tova", "quantize": "int8", "cache": "auto",
        "prune.window": "8", "prune.ratio": "0.25, 0.5",
    }  # fmt: skip
    tree["task"] = {
        "name": "bench",
        "caches": ["dynamic", "view"],
        "dtypes": ["float32", "bfloat16"],
    }
    told = dict(contents.chosen(tree, []))
    assert (told["cache"], told["dtype"], told["prune"]) == ("dynamic, view", "float32, bfloat16", "snapkv")  # fmt: skip
    placed = {"model": {"name": "path", "path": "a/mine"}}
    assert dict(contents.chosen(placed, []))["model"] == "mine", "not how it was given"
    tree["task"] = {"name": "experiment"}
    assert dict(contents.chosen(tree, []))["cache"] == "auto"


def test_a_prompt_that_another_worker_notes_at_the_same_moment(swept, tmp_path):
    """MLflow looks whether it is there and inserts it if not; the store says no to who is second."""
    folder, quicker = tmp_path / "0", []
    shutil.copytree(swept / "0", folder, ignore=shutil.ignore_patterns("snapshot"))
    settings = SimpleNamespace(name="mlflow", uri=None, experiment="race", artifact_limit_mb=0.0)

    def at_the_same_moment(session, *_):
        for row in [r for r in session.new if isinstance(r, SqlDataset) and not quicker]:
            quicker.append("another's")
            values = {c.name: getattr(row, c.name) for c in SqlDataset.__table__.columns}
            values["dataset_uuid"] = quicker[0]
            with sqlite3.connect(tmp_path / "mlflow.db") as base:
                marks = ", ".join(f":{name}" for name in values)
                base.execute(f"insert into datasets ({', '.join(values)}) values ({marks})", values)

    event.listen(Session, "before_flush", at_the_same_moment)
    try:
        block, said = track.log(
            settings, tmp_path, folder, record.read(folder / "result.json"), "0"
        )
    finally:
        event.remove(Session, "before_flush", at_the_same_moment)
    assert block, said
    with sqlite3.connect(tmp_path / "mlflow.db") as base:
        assert base.execute("select dataset_uuid from datasets").fetchall() == [(quicker[0],)]
        (count,) = base.execute(
            "select count(*) from inputs where source_id = ?", quicker
        ).fetchone()
    assert count == 1


def test_another_model_is_another_logged_model(swept):
    result = record.read(swept / "0" / "result.json")
    name, tags, _ = models.of(result)
    weights = next(e for e in result["elements"] if e["name"] == "attention_weights")
    weights["digest"] = "0" * 64
    other, changed, _ = models.of(result)
    assert other != name and changed["identity"] != tags["identity"]
    assert models.of({**result, "elements": []}) is None


def test_parameters_are_what_was_chosen_and_few(swept, runs, tmp_path):
    told = tracked(swept, runs, "0").data.params
    assert (
        len(told) <= contents.PARAMS and told["cache"] == "dynamic" and told["prompt.batch"] == "1"
    )
    assert "artifact_limit_mb" not in " ".join(told)
    shutil.copytree(swept / "0", tmp_path / "0", ignore=shutil.ignore_patterns("snapshot"))
    path = tmp_path / "0" / "record.json"
    tree = json.loads(path.read_text())
    tree["config"] |= {f"key{i}": {"name": str(i)} for i in range(99)}
    path.write_text(json.dumps(tree))
    assert len(list(contents.parameters(tmp_path / "0"))) == contents.PARAMS


def test_yes_and_no_are_tags_and_no_charts(swept, runs):
    run = tracked(swept, runs, "0")
    assert run.data.tags["bitwise_equal"] in ("true", "false") and "mutated" in run.data.tags
    assert not any("bitwise" in key or "mutated" in key for key in run.data.metrics)
    assert (
        contents.tags({"text": {"expected": "5", "restored_right": False}}, swept / "0")["answer"]
        == "wrong"
    )


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


def test_what_single_runs_differ_in_is_a_column_however_much_a_sweep_varied(harness, place):
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

    for dtype in ("float32", "bfloat16"):
        harness("steps=1", f"dtype={dtype}", track="mlflow")
    (held,) = [e for e in client(place / "runs").search_experiments() if e.name == "harness"]
    columns = json.loads(held.tags[experiment.VIEW])["columnOrder"]
    assert "params.`dtype`" in columns, "with no sweep and before a dashboard is opened"
    assert columns.index("params.`dtype`") < columns.index("metrics.`oracle/ratio`")


def test_a_longer_run_shows_what_it_took_of_the_machine():
    watch = Watch.__new__(Watch)
    watch.pid, watch._before = __import__("os").getpid(), (0.0, 0.0)
    sample = watch._sample()
    assert (
        0 <= sample["cpu_utilization_percentage"] <= 100 and sample["process_memory_megabytes"] > 1
    )
    ended = subprocess.Popen(
        ["true"]
    )  # after `kill -9` it waits to be collected, and holds nothing
    while Path(f"/proc/{ended.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    watch.pid = ended.pid
    with pytest.raises(ProcessLookupError):
        watch._sample()
    ended.wait()
    watch._samples = [(1000 * second, sample) for second in range(100)]
    short, long = watch.since(0, int(LONGER * 1000) - 1), watch.since(10_000, 60_000)
    assert short == [] and len(long) == 51 * len(sample)
    assert {name for name, _, _ in long} == {f"system/{name}" for name in sample}


@pytest.mark.parametrize(
    "result, word",
    [
        ({"task": "experiment", "verdict": "diverged"}, "diverged"),
        ({"task": "experiment", "verdict": "unjudged"}, "unjudged"),
        ({"task": "audit", "verdict": "equivalent", "required": "equivalent"}, "same"),
        ({"task": "audit", "verdict": "diverged", "required": "equivalent"}, "differs"),
        ({"task": "faults", "verdict": "failed", "required": "exact"}, "not every fault caught"),
        ({"task": "faults", "verdict": "failed", "exit_code": 2}, "failed"),  # it never came so far
        ({"task": "save", "verdict": "unjudged"}, "saved"),
        ({"task": "evaluate", "verdict": "unjudged"}, ""),
    ],
)
def test_a_run_says_what_came_out_in_the_words_of_its_task(result, word, tmp_path):
    assert outcome(result) == word
    name = names.of_run(result | {"options": {"model": "tiny"}}, tmp_path, "mine")
    assert name == (f"mine tiny: {word}" if word else "mine tiny")


def test_the_source_of_a_long_text_is_still_read():
    for text in ("a" * 9000, '"' * 9000, "\u00e4\n" * 9000):
        told = datasets._source({"text": text, "tokenizer": {"name": "raw"}})
        assert len(told["source"]) <= datasets.MOST
        read = json.loads(told["source"])["tags"]
        assert read["text"].endswith("...") and "raw" in read["tokenizer"]
