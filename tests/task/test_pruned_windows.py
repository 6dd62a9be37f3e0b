"""Windows that are full again of tokens read after a pruning: their past was pruned on purpose, and that is no damage."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.config import option
from harness.save import store
from harness.snapshot.history import reduced

MODEL = (
    "model=shape", "model.architecture=mistral",
    "model.config={num_hidden_layers: 3, hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, "
    "num_key_value_heads: 2, vocab_size: 1200, sliding_window: 12}",
)  # fmt: skip
TEXT = "text=let k be 5 . the old man walked to the river . the bird sang in the tree ."


@pytest.fixture
def refilled(harness) -> str:
    """A snapshot whose windows hold nothing that was read before the pruning."""
    assert harness("task=save", *MODEL, TEXT, "out=a").code == 0
    assert (
        harness(
            "task=prune", *MODEL, "snapshot=a", "prune=sink_window", "prune.tokens=4", "out=b"
        ).code
        == 0
    )
    done = harness("task=resume", *MODEL, "snapshot=b", "text= ok .", "steps=20", "out=c")
    assert done.code == 0 and done.result["pruned"], done.out
    return "c"


def test_what_was_pruned_on_purpose_is_no_damage_after_its_windows_are_full_again(
    refilled, harness
) -> None:
    done = harness(
        "task=resume",
        *MODEL,
        f"snapshot={refilled}",
        "text= go on .",
        "steps=6",
        "report.verbose=true",
    )
    assert done.code == 0, done.out
    assert done.result["pruned"] is True and "compare.require_pruned" in done.out
    evidence = done.result["diagnosis"]["evidence"]
    assert evidence.startswith("pruned on purpose") and "saw only what was left" in evidence
    assert done.result["diagnosis"]["layer"] is None


def test_before_they_are_full_of_others_rows_that_ids_do_not_give_are_damage(harness) -> None:
    """What was kept by the pruning itself is still held to its ids."""
    assert harness("task=save", *MODEL, TEXT, "out=a").code == 0
    pruning = ("prune=sink_window", "prune.tokens=4", "out=b")
    assert harness("task=prune", *MODEL, "snapshot=a", *pruning).code == 0
    state, manifest = store.load("b")
    assert (
        reduced(state) and manifest["documents"]["kv_format"]["pruned"][0]["tokens"] == state.tokens
    )
    first, second, *rest = state.layers
    exchanged = (
        replace(first, segments=second.segments),
        replace(second, segments=first.segments),
        *rest,
    )
    store.save(state.with_layers(exchanged), Path("c"), option("save", "safetensors"))
    done = harness(
        "task=resume", *MODEL, "snapshot=c", "text= go on .", "steps=6", "report.verbose=true"
    )
    assert done.code == 1 and done.result["diagnosis"]["cause"] == "layer", done.out


def test_a_window_that_was_never_pruned_is_judged_as_a_whole_one(harness) -> None:
    assert harness("task=save", *MODEL, TEXT, "out=a").code == 0
    done = harness("task=resume", *MODEL, "snapshot=a", "text= ok .", "steps=20")
    assert done.code == 0 and done.result["pruned"] is False
    assert done.result["verdict"] in ("exact", "equivalent")
