"""Pruning from the command line: experiment, save, prune, resume; bad input is one message."""

import json

import pytest
from crossing import crossed

TEXT = "text=let k be 5 . the bird sang . the old man walked to the river . what is k ?"
POLICIES = (
    "keep_last,sink_window,knorm,heavy_hitter,snapkv,tova,keydiff,expected_attention,random,chain"
)

POSITIONS = ["original", "reindexed"]


def test_a_sweep_over_policies_keeps_half(harness):
    done = harness("-m", f"prune={POLICIES}", "prune.ratio=0.5", "steps=4", "prompt=text", TEXT)
    assert done.code == 0 and len(done.results) == 10
    for result in done.results:
        assert abs(result["size"]["kept_tokens"] / result["size"]["tokens"] - 0.5) < 0.02
        assert result["verdict"] in ("drifted", "diverged") and result["time_s"]["prune"] > 0


@pytest.mark.parametrize(
    "name, positions", crossed(["sink_window", "heavy_hitter", "snapkv"], POSITIONS)
)
def test_a_budget_of_everything_is_equivalent(harness, name, positions):
    result = harness(f"prune={name}", "prune.ratio=1.0", f"prune.positions={positions}", TEXT, "steps=8").result  # fmt: skip
    assert result["verdict"] in ("exact", "equivalent") and result["required"] == "equivalent"


@pytest.mark.parametrize(
    "name, positions", crossed(["keep_last", "heavy_hitter", "snapkv"], POSITIONS, 1)
)
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


@pytest.mark.parametrize("lossy", ["prune=keep_last prune.tokens=8", "quantize=int4"])
def test_what_was_lost_on_purpose_is_what_the_diagnosis_names(harness, lossy):
    """The smaller state is diagnosed, not the whole one that it was made of."""
    harness("task=save", TEXT, "out=whole")
    done = harness("task=prune", "snapshot=whole", *lossy.split(), "steps=6", "out=small")
    told = done.result["diagnosis"]
    assert done.result["verdict"] in ("drifted", "diverged")
    assert "on purpose" in told["evidence"] and "leaves the noise" not in told["evidence"]
    assert (told["cause"] == "rounding") is ("int4" in lossy)


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
    (["task=evaluate", "prompt=recall", "task.budgets=[0.5,2.0]"], "task.budgets"),
    (["task=evaluate", "prompt=recall", "task.prunes=[keep_lost]"], "keep_last"),
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
