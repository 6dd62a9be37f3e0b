"""What MLflow gets of a run: a name, parameters, tags and metrics."""

import json
from math import inf, nan

import pytest

from harness.results.run import FACTS
from harness.snapshot import table
from harness.track import contents, metrics, parent

RESULT = {
    "task": "resume", "verdict": "diverged", "required": "equivalent", "reason": "step 2 chooses another token",
    "conclusion": "Another thought.", "curves": {"restored": {"kl": [1.0, None, inf]}, "noise": {"kl": [0.0, 1e-9]}},
    "metrics": {"kl_max": 0.5, "bitwise_equal": False, "max_ulp": inf, "kl_mean": nan, "first_divergence": 2, "mine": 0.25},
    "noise_floor": {"kl_max": 0.1, "top1_agreement": 1.0}, "mutation": {"mutated": False, "length_before": 7},
    "snapshot": {"id": "aa", "path": "a"}, "next": {"id": "bb", "path": "b", "size": {"tokens": 9, "kept_tokens": 3}},
    "size": {"tokens": 5}, "time_s": {"prefill": 0.5}, "text": {"expected": "5", "restored_right": True}, "folder": "runs/x",
}  # fmt: skip


def test_a_metric_is_what_its_fact_says_and_finite():
    told = {key: (value, step) for key, value, step in metrics.metrics(RESULT)}
    assert told["logits/kl_max"] == (0.5, 0) and told["noise/kl_max"] == (0.1, 0)
    assert told["logits/first_divergence_from_1"] == (3, 0), "people count from 1"
    assert told["logits/mine"] == (0.25, 0), "a metric of the user's own"
    assert told["by_step/kl"] == (1.0, 1), "and neither None nor infinity"
    assert told["size/tokens"] == (9, 0) and told["size/read_tokens"] == (5, 0)
    assert told["size/kept_share"] == (1 / 3, 0) and told["time/prefill"] == (0.5, 0)
    absent = {"logits/max_ulp", "logits/kl_mean", "logits/bitwise_equal", "noise/top1_agreement", "by_step/noise_kl", "mutation/length_before"}  # fmt: skip
    assert not absent & told.keys()
    for path, fact in FACTS.items():
        block, _, key = path.partition(".")
        if key and block not in ("noise_floor", "size") and key != "first_divergence":
            made = [name for name, *_ in metrics.metrics({block: {key: 7}})]
            assert (f"{metrics.SECTIONS[block]}/{key}" in made) is (fact.track == "metric"), path


def test_tags_say_what_came_out(tmp_path):
    tags = contents.tags(tmp_path, RESULT)
    wanted = {
        "verdict": "diverged", "outcome": "diverged", "conclusion": "Another thought.", "required": "equivalent",
        "exit_code": "1", "snapshot_id": "bb", "parent_snapshot_id": "aa", "bitwise_equal": "false", "mutated": "false",
        "answer": "right", "task": "resume", "mlflow.note.content": "Another thought.",
    }  # fmt: skip
    assert tags.items() >= wanted.items() and "reason" not in tags
    refused = {"task": "resume", "verdict": "refused", "reason": "why " * 999, "exit_code": 3}
    tags = contents.tags(tmp_path, refused)
    assert tags["exit_code"] == "3" and len(tags["reason"]) <= contents.LONG
    saved = {"task": "save", "verdict": "unjudged", "reason": "saved"}
    assert not {"required", "exit_code", "verdict"} & contents.tags(tmp_path, saved).keys()


@pytest.mark.parametrize("device, known", [("cpu", True), ("none", False)])
def test_what_a_run_was_made_with_is_tagged_where_it_loaded_a_model(tmp_path, device, known):
    where = {
        "device": device,
        "versions": {"torch": "2.13.0"},
        "git": {"commit": "c0", "dirty": True},
    }
    tags = contents.tags(tmp_path, {**RESULT, "environment": where})
    assert (tags.get("torch") == "2.13.0") is (tags.get("device.served") == "cpu") is known
    assert (tags["git_commit"], tags["git_dirty"]) == ("c0", "true")


def test_a_folder_is_tagged_as_it_lies_below_where_it_was_started(tmp_path, monkeypatch):
    folder = tmp_path / "runs" / "s"
    folder.mkdir(parents=True)
    for _ in range(2):
        tags = contents.written(contents.place(folder, "runs/s"))
        assert (tags["folder"], tags["directory"]) == ("runs/s", str(tmp_path))
        assert parent.folder_of(tags) == folder
        monkeypatch.chdir("/")  # uploaded from elsewhere: the record says where it was started
    tags = contents.written(contents.place(folder, str(folder)))
    assert "directory" not in tags and parent.folder_of(tags) == folder


def test_parameters_are_what_was_chosen_and_few():
    tree = {
        "task": {"name": "evaluate", "prunes": ["none", "keydiff"]}, "prune": {"name": "keep_last", "ratio": 0.25},
        "cache": {"name": "auto", "branches": 1}, "track": {"name": "mlflow"}, "fault": {"name": "none"}, "seed": 0,
        "text": None, "long": "x" * 9000, "runs_dir": "runs", "called": {},
    }  # fmt: skip
    told = contents.chosen(tree, ["long=x", "runs_dir=x", "task.prunes=[none,keydiff]"])
    assert told["prune"] == told["task.prunes"] == "none, keydiff", (
        "all that the task takes in turn"
    )
    assert (told["cache"], told["seed"], told["prune.ratio"]) == ("auto", "0", "0.25")
    assert len(told["long"]) == contents.LONG and not {"runs_dir", "track", "fault"} & told.keys()
    assert contents.safe("a=[b]") == "a__b_"
    assert (
        len(contents.chosen({f"k{i}": i for i in range(99)}, [f"k{i}=1" for i in range(99)])) == 40
    )


@pytest.mark.parametrize(
    "override, said, brief",
    [
        ("prune.ratio=0.5", "prune.ratio=0.5", "prune.ratio=0.5"),
        ("snapshot=/far/away/mine", "snapshot=/far/away/mine", "snapshot=mine"),
        ("text='${literal:\"IGxldCBrIGJlIDUgLg==\"}'", 'text=" let k be 5 ."', 'text=" let k be 5 ."'),
    ],
)  # fmt: skip
def test_an_override_is_shown_as_it_is_typed(override, said, brief):
    assert contents.read(override) == said and contents.read(override, brief=True) == brief


def test_a_run_is_named_by_what_was_typed_and_what_came_out(tmp_path):
    (tmp_path / ".hydra").mkdir()
    words = tmp_path / ".hydra" / "overrides.yaml"
    for typed, configured, name in (
        (["prune=snapkv", "runs_dir=x"], "experiment", "prune=snapkv: diverged"),
        (["task=resume", "snapshot=/far/a"], "resume", "resume snapshot=a: diverged"),
        ([], "experiment", "experiment: diverged"),
        ([f"text={'x' * 200}"], "experiment", f"text={'x' * 72}...: diverged"),
    ):
        words.write_text(json.dumps(typed))
        assert contents.name(tmp_path, RESULT, configured) == name


def test_the_figures_of_a_table_are_told_by_what_tells_its_rows_apart(tmp_path):
    """The twins: no such file, a file elsewhere, and a task without a table."""
    rows = [{"cache": "view", "context": 128, "per_token_s": 0.5, "same": True},
            {"cache": "manual", "context": 128, "per_token_s": None, "same": False}]  # fmt: skip
    block = table.block("bench", [*rows[0]], ["cache", "context"], "fast")
    (tmp_path / "bench.json").write_text(json.dumps(rows))
    result = {"task": "bench", "table": block, "verdict": "unjudged", "reason": "measured"}
    assert list(metrics.tabled(tmp_path, result)) == [("per_token_s/view 128", 0.5, 0)]
    assert contents.word(result) == "fast"
    for other in ({**block, "file": "../bench.json"}, {**block, "file": "gone.json"}, {}):
        assert list(metrics.tabled(tmp_path, {**result, "table": other})) == []


def test_a_chat_has_its_turns_as_steps(tmp_path):
    rows = [{"cached_s": 0.5, "recalled": True, "ask": "x"}, {"cached_s": 0.25, "recalled": None}]
    (tmp_path / "chat.json").write_text(json.dumps(rows))
    wanted = [
        ("by_turn/cached_s", 0.5, 1),
        ("by_turn/recalled", 1.0, 1),
        ("by_turn/cached_s", 0.25, 2),
    ]
    assert list(metrics.turns(tmp_path)) == wanted


def test_a_sweep_has_counts_ends_and_the_figures_of_its_best():
    rows = [
        {"verdict": "unjudged", "point": str(v), "evaluate.contains": v} for v in (0.5, None, 1.0)
    ]
    told = list(parent.totals(rows, ["evaluate.contains"], (), "1.0"))
    assert [one for one in told if "best" in one[0]] == [("best/contains", 1.0, 0)]
    assert ("sweep/largest_contains", 1.0, 0) in told and ("sweep/unjudged", 3.0, 0) in told
    again = {
        key: value for key, value, _ in parent.totals(rows, (), {"sweep/exact": 1, "best/x": 1})
    }
    assert again["sweep/exact"] == 0 and again["best/x"] != again["best/x"], (
        "as a later try corrects it"
    )
    row = {"verdict": "exact", "error_ratio": 0.5, "per_token_s": 0.1}
    points = [{**row, "point": p, "kv_bytes": n} for p, n in (("0", 9), ("1", 5), ("2", 1))]
    best = {k: v for k, v, _ in parent.totals(points, (), (), "0") if "best/" in k}
    assert best == {"best/oracle/ratio": 0.5, "best/per_token": 0.1, "best/kv_bytes": 9.0}, (
        "as the point's"
    )
    middle = {k: v for k, v, _ in parent.totals(points, (), (), "", ["0", "1"])}
    assert middle["best/kv_bytes"] == 7.0, "of one choice under two seeds"
