"""What is told of the parts of a run, and of an evaluation by its parts."""

import json

import pytest
from stores import client

from harness.report.evaluate import page as evaluate
from harness.track import contents, description, names, parts


def test_a_cell_says_what_it_came_to_and_so_does_its_evaluation(tmp_path):
    """In the words of the list's columns, which were empty for both."""
    cell = {"name": "keydiff 25%", "tags": {"prune": "keydiff"},
            "metrics": {"answers/contains": 2 / 3, "answers/nll": 0.805, "answers/kl": None,
                        "size/kv_bytes": 77824.0, "time/per_token": 0.00164}}  # fmt: skip
    said = (
        "66.7% of the answers right, 0.805 nats per token of the expected text, 76 KiB of keys and values, "
        "1.64 ms per token"
    )
    assert parts.told(cell) == {
        "outcome": "66.7% right",
        "conclusion": said,
        "mlflow.note.content": f"**66.7% right**: {said}",
    }
    claim = {"name": "claim 7: holds", "tags": {"says": "caches are kept"}, "metrics": {}}
    assert parts.told(claim)["outcome"] == "holds"
    assert parts.told(claim)["conclusion"] == "caches are kept"
    claim["tags"]["claimed"] = "A cache grows."
    note = parts.told(claim, "tail")["mlflow.note.content"]
    assert note == "**holds**: caches are kept\n\nThe claim: A cache grows.\n\ntail"
    assert parts.told({"name": "a", "tags": {}, "metrics": {"answers/kl": 1.0}}) == {}

    result = {"task": "evaluate", "verdict": "unjudged", "conclusion": "24 prompts."}
    (tmp_path / "record.json").write_text('{"config": {"report": {"objectives": null}}}')
    for shares, word in (((1.0, 0.25, 0.5), "25% to 100% right"), ((1.0, 1.0), "100% right")):
        rows = [{"measure": m, "value": v} for v in shares for m in ("contains", "kl")]
        rows[1]["value"] = 9.0  # of another measure
        (tmp_path / "evaluate.json").write_text(json.dumps(rows))
        assert contents.tags(result, tmp_path)["outcome"] == word
    assert names.of_run(result, tmp_path, "evaluate").endswith(": 100% right")

    cell = {
        "quantize": "none",
        "cache": "dynamic",
        "asked": "after",
        "delta": 0.0,
        "delta_high": 0.0,
    }
    rows = [
        {**cell, "prune": prune, "budget": budget, "measure": measure, "value": value, "kv_bytes": held}
        for prune, budget, held, right in (("none", 1.0, 99, 0.75), ("keydiff", 0.5, 50, 1.0), ("snapkv", 0.25, 25, 0.0))
        for measure, value in (("contains", right), ("nll", 1.0))
    ]  # fmt: skip
    (tmp_path / "evaluate.json").write_text(json.dumps(rows))
    assert contents.tags(result, tmp_path)["outcome"] == "keydiff 50%: 100% right", "its winner"
    assert parts.ranged(tmp_path) == "0% to 100% right"
    assert parts.ranged(tmp_path, parts.contained) == "contains 0 to 1"
    assert parts.answered(tmp_path, parts.contained) == "keydiff 50%: contains 1"
    below = evaluate.children([{**row, "per_token_s": None} for row in rows])
    assert {(key, value) for key, value, _ in parts.above(below)} >= {
        ("best/contains", 1.0), ("best/kv_bytes", 50.0), ("full/contains", 0.75), ("full/kv_bytes", 99.0)
    }  # fmt: skip
    ends = [{**row, "per_token_s": None, "low": 0.5, "high": 1.0} for row in rows]
    below = evaluate.children(ends)
    assert below[1]["metrics"]["answers/contains_low"] == 0.5
    head, _, _, line, *_ = description._parts(below)
    assert (
        head.startswith("|  | contains (share) | 95% | nll (nats) |") and "| 1 | 50-100% |" in line
    )
    assert "low" not in parts.told(below[1])["conclusion"]
    worse = [{**row, "delta": -1.0, "delta_high": -0.5} for row in rows]
    (tmp_path / "evaluate.json").write_text(json.dumps(worse))
    outcome = contents.tags(result, tmp_path)["outcome"]
    assert outcome == "no safe choice, 100% right at most", "of what is not the full cache"
    below = evaluate.children([{**row, "per_token_s": None} for row in worse])
    told = {key: value for key, value, _ in parts.above(below)}
    assert (told["best/contains"], told["best/kv_bytes"]) == (1.0, 50.0), "the nearest"
    assert "**keydiff&nbsp;50%**&nbsp;(nearest)" in "".join(description._parts(below))
    (tmp_path / "evaluate.json").unlink()
    assert "outcome" not in contents.tags(result, tmp_path)


@pytest.mark.parametrize(
    "document, name",
    [
        ({"called": "snapkv ratio=0.25 tiny"}, "audit snapkv ratio=0.25 tiny: same"),
        ({"called": "word " * 30}, f"audit {'word ' * 10}...: same"),
        ({}, "audit one in experiment: same"),
    ],
)
def test_an_audit_is_named_as_what_it_is_of(tmp_path, document, name):
    """Where its report says no name, as of an older version, by where that lies."""
    (tmp_path / "audit.json").write_text(json.dumps({"run": "runs/experiment/one", **document}))
    result = {"task": "audit", "verdict": "exact", "required": "equivalent", "audit": {"bitwise": True},
              "options": {"task": "audit"}}  # fmt: skip
    assert names.of_run(result, tmp_path, "audit") == name


def test_a_table_of_tests_has_no_verdict_but_one_that_came_to_no_end(tmp_path):
    for task in ("faults", "architectures"):
        for verdict, ended, kept in (("equivalent", {}, False), ("diverged", {}, False), ("failed", {"exit_code": 2}, True)):  # fmt: skip
            told = contents.tags({"task": task, "verdict": verdict, **ended}, tmp_path)
            assert ("verdict" in told) is kept, (task, verdict)


def test_a_list_shows_what_tells_pruned_runs_apart(tmp_path):
    said = (
        "Pruning: another token than the full cache's at 2 of 32 steps, with 48 of 97 tokens kept."
    )
    whole = f"Restore: as saved, within rounding. {said}"
    crossed = f"Cross-check: cache=dynamic goes on with what was kept just as this cache does, bit for bit. {said}"
    older = f"Same pruned thought: brought back as it was saved, within rounding. {said}"
    for recorded in (whole, crossed, older, said):
        assert contents.tags({"conclusion": recorded}, tmp_path)["conclusion"] == said


def test_what_mlflow_compares_evaluations_by_first_is_what_they_came_to(harness, place):
    """Its comparison draws the first metric that all have: how long a model took to load told nobody anything."""
    done = harness("task=evaluate", "prompt=recall", "prompt.samples=1", "prompt.distance=8", "steps=3",
                   "task.prunes=[knorm]", "task.budgets=[0.5]", track="mlflow")  # fmt: skip
    run = client(place / "runs").get_run(done.result["mlflow"]["run_id"])
    assert run.data.tags["cache.served"] == "manual" and run.data.params["cache"] == "auto"
    held = run.data.metrics
    first, *_ = held
    assert "time/load_model" in held and first.startswith(("best/", "full/")), [*held]
