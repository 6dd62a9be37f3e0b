"""What a tracked run consists of besides metrics: parameters, inputs, tags, what it took."""

import json
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import mlflow
import pytest
from mlflow.store.tracking.dbmodels.models import SqlDataset
from sqlalchemy import event
from sqlalchemy.orm import Session
from stores import client

from harness import track
from harness.snapshot import record
from harness.snapshot.digest import digest_bytes
from harness.snapshot.result import outcome
from harness.track import contents, datasets, inputs, models, names, parts
from harness.track.usage import LONGER, Watch


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
    assert (whole["prune"], whole["prune.ratio"]) == ("none", "1"), "all is kept"
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
    few = there.search_runs(["1"], f"metrics.`size/kept_share` < 0.6 and {below}")
    assert {c.info.run_id for c in few} == {c.info.run_id for c in found}, "by its range"
    figures = evaluated.data.metrics
    assert {"full/contains", "full/kv_bytes", "full/perplexity"} <= figures.keys()
    sections = {key.partition("/")[0] for key in figures}
    assert not sections & {"answers", "cells"}, "the last cell's would pose as the run's"


@pytest.mark.parametrize("keys, told", [({}, True), ({"encrypt": "none"}, True), ({"encrypt": "env:K"}, False),
                                        ({"decrypt": "env:K", "encrypt": "none"}, False)])  # fmt: skip
def test_a_prompt_is_read_beside_its_dataset_unless_it_was_encrypted(tmp_path, keys, told):
    (tmp_path / "record.json").write_text(json.dumps({"config": {"prompt": {"name": "x"}, **keys}}))
    element = {"name": "token_buffer", "digest": "0" * 64}
    result = {"elements": [element], "size": {"tokens": 7}, "text": {"prompt": "k" * 999}}
    profile = json.loads(datasets.of(result, tmp_path)[0]["profile"])
    assert profile == {"tokens": 7, **({"prompt": "k" * 200 + "..."} if told else {})}


def test_a_loop_has_read_what_an_experiment_has_and_a_chat_its_own_turns(harness, tmp_path) -> None:
    """What a loop wrote after its prompt is no prompt, and no chat reads the prompt of the configuration."""
    read = []
    for task in ("experiment", "loop"):
        (folder,) = harness(f"task={task}", "steps=2").folders
        read += datasets.of(json.loads((folder / "result.json").read_text()), folder)
    one, other = (json.loads(each["profile"])["tokens"] for each in read)
    assert read[0]["digest"] == read[1]["digest"] and one == other
    (folder,) = harness(
        "task=chat", "task.turns=[{ask: let k be 5 .},{ask: what is k ?}]", "steps=2"
    ).folders
    (turns,) = datasets.of(json.loads((folder / "result.json").read_text()), folder)
    assert turns["name"] == "turns of task=chat" and "let k be 5 ." in turns["source"]
    assert json.loads(turns["profile"]) == {"turns": 2} and turns["digest"] != read[0]["digest"]
    params = dict(contents.parameters(folder))
    assert params["task"] == "chat" and "prompt" not in params


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
    assert (told["cache"], told["dtype"]) == ("dynamic, view", "float32, bfloat16")
    assert "prune" not in told, "which task=bench cannot heed"
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
    assert {name for name, *_ in long} == {f"system/{name}" for name in sample}
    assert [step for name, *_, step in long if name == long[0][0]] == [*range(51)], "no gaps"


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
