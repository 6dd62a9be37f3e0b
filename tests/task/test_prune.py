"""Pruning from the command line: experiment, save, prune, resume, quality; bad input is one message."""

import json

import pytest

TEXT = "text=let k be 5 . the bird sang . the old man walked to the river . what is k ?"
POLICIES = (
    "keep_last,sink_window,knorm,heavy_hitter,snapkv,tova,keydiff,expected_attention,random,chain"
)


def test_a_sweep_over_policies_keeps_half(harness):
    done = harness("-m", f"prune={POLICIES}", "prune.ratio=0.5", "steps=4", "prompt=text", TEXT)
    assert done.code == 0 and len(done.results) == 10
    for result in done.results:
        assert abs(result["size"]["kept_tokens"] / result["size"]["tokens"] - 0.5) < 0.02
        assert result["verdict"] in ("drifted", "diverged") and result["time_s"]["prune"] > 0


@pytest.mark.parametrize("positions", ["original", "reindexed"])
@pytest.mark.parametrize("name", ["sink_window", "heavy_hitter", "snapkv"])
def test_a_budget_of_everything_is_equivalent(harness, name, positions):
    result = harness(f"prune={name}", "prune.ratio=1.0", f"prune.positions={positions}", TEXT, "steps=8").result  # fmt: skip
    assert result["verdict"] in ("exact", "equivalent") and result["required"] == "equivalent"


@pytest.mark.parametrize("positions", ["original", "reindexed"])
@pytest.mark.parametrize("name", ["keep_last", "heavy_hitter", "snapkv"])
def test_a_stored_snapshot_is_pruned_and_goes_on(harness, place, name, positions):
    harness("task=save", TEXT, "out=whole")
    whole = json.loads((place / "whole" / "manifest.json").read_text())
    given = ["task=prune", "snapshot=whole", "out=small", f"prune={name}", "prune.tokens=8"]
    done = harness(*given, f"prune.positions={positions}", "steps=6")
    assert done.code == 0 and done.result["verdict"] == "diverged"
    small = json.loads((place / "small" / "manifest.json").read_text())
    assert small["parent"] == whole["id"] and small["kept_tokens"] == 8
    record = small["documents"]["kv_format"]["pruned"][-1]
    assert (record["policy"], record["kept_tokens"], record["positions"]) == (name, 8, positions)
    assert small["next_position"] == (whole["next_position"] if positions == "original" else 8)
    for cache in ("manual", "cloned"):
        resumed = harness("task=resume", "snapshot=small", "text= what is k ?", "steps=5", f"cache={cache}")  # fmt: skip
        assert resumed.code == 0


BAD = [
    (["prune=keep_last", "prune.tokens=0"], "prune.tokens=0"),
    (["prune=keep_last", "prune.tokens=100000"], "more than the"),
    (["prune=keep_last", "prune.tokens=4", "prune.protect=9"], "prune.protect"),
    (["prune=keep_last", "prune.ratio=1.2"], "prune.ratio=1.2"),
    (["prune=keep_last", "prune.ratio=0"], "prune.ratio=0"),
    (["prune=keep_lost"], "keep_last"),
    (["prune=knorm", "prune.positions=reindexed", "model=tiny_gpt2"], "learned positions"),
    (["task=prune", "prune=knorm"], "snapshot=DIR"),
    (["task=prune", "snapshot=whole"], "needs a policy"),
    (["task=loop", "prune=sink_window", "prune.tokens=16", "steps=100000"], "reindexed"),
    (["task=loop", "prune=sink_window", "prompt.batch=2", "steps=2"], "prompt.batch=1"),
    (["task=quality", "task.budgets=[0.5,2.0]"], "task.budgets"),
    (["task=quality", "task.policies=[keep_lost]"], "keep_last"),
    (["prompt=recall", "prompt.distance=2"], "prompt.distance=2"),
]


@pytest.mark.parametrize(("given", "says"), BAD, ids=lambda g: " ".join(g) if isinstance(g, list) else "")  # fmt: skip
def test_bad_input_is_one_plain_message(harness, given, says):
    text = (
        []
        if any(word in g for g in given for word in ("recall", "batch", "task=prune"))
        else [TEXT]
    )
    if "snapshot=whole" in given:
        harness("task=save", TEXT, "out=whole")
    done = harness(*given, *text)
    assert done.code == 2 and says in done.out and "Traceback" not in done.out
    assert len([line for line in done.out.splitlines() if line.startswith("harness:")]) == 1


def test_recall_is_a_prompt(harness):
    result = harness("prompt=recall", "prompt.distance=24", "prompt.seed=3", "steps=4").result
    words = result["text"]["prompt"].split()
    name = words[-2]
    at = max(i for i, w in enumerate(words[:-4]) if w == name and words[i - 1] == "let")
    assert words[-4:] == ["what", "is", name, "?"] and len(words) - 4 - (at + 4) == 24
    assert harness("prompt=recall", "tokenizer=chat", "prompt.distance=40", "steps=2").code == 0


def test_quality_measures_what_it_says(harness):
    """The two ends and the fault: everything kept is the full cache; wrong positions cost more than
    the pruning itself, with the intervals of the seeds beside them."""
    done = harness(
        "experiment=prune_sweep", "task.samples=4", "task.policies=[sink_window,random]",
        "task.budgets=[0.5,1.0]", "task.distances=[32]", "task.context=96", "task.follow=32",
    )  # fmt: skip
    assert done.code == 0 and "<svg" in (done.folders[0] / "report.html").read_text()
    rows = json.loads((done.folders[0] / "quality.json").read_text())

    def value(measure, policy, budget, positions="original", asked=None):
        wanted = (measure, policy, budget, positions, asked, None, None)
        keys = ("measure", "policy", "budget", "positions", "asked", "distance", "depth")
        (row,) = [r for r in rows if tuple(r[k] for k in keys) == wanted]
        assert row["low"] <= row["value"] <= row["high"] and row["n"] >= 4
        return row["value"]

    full = value("perplexity", "full cache", 1.0)
    for policy in ("sink_window", "random"):
        assert value("perplexity", policy, 1.0) == pytest.approx(full, rel=1e-4)
        assert value("divergence", policy, 1.0) < 1e-6 < value("divergence", policy, 0.5)
    pruning = value("divergence", "sink_window", 0.5)
    assert value("divergence", "sink_window", 0.5, "length as position") > 2 * pruning
    sizes = {(r["policy"], r["budget"]): r["kv_bytes"] for r in rows}
    assert sizes["sink_window", 0.5] == pytest.approx(sizes["full cache", 1.0] / 2, rel=0.02)
    assert {r["asked"] for r in rows} == {None, "after pruning", "before pruning"}


def test_quality_reads_any_text_and_any_model(harness, place):
    (place / "text.txt").write_text("the bird sang . the old man walked to the river . " * 20)
    done = harness(
        "task=quality", "prompt=file", "prompt.path=text.txt", "task.samples=2", "task.context=32",
        "task.follow=8", "task.policies=[knorm]", "task.budgets=[0.5]", "task.distances=[]",
        "model=tiny_gpt2",
    )  # fmt: skip
    assert done.code == 0 and "learned positions" in done.result["refused"]
