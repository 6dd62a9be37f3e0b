"""One fault through the main line: refused, or with `restore.strict=false` judged for what it is."""

import pytest
from table import CASES

QUICK = ("layer_swap", "stale_values", "bit_flip bit=3", "query_tuned", "position_off_by_one",
         "buffer_reordered", "template_edited", "prefix_lost", "vocabulary_resized",
         "ring_rotated", "recurrent_behind", "indexer_shifted", "restore_nothing")  # fmt: skip
SLIDING, HYBRID, SPARSE = (
    [f"model={name}", "cache=cloned"] for name in ("tiny_gemma3", "tiny_hybrid", "tiny_sparse")
)
NEEDS = {
    "padding_unmasked": ["prompt.batch=2"],
    "padding_attended": ["prompt.batch=2"],
    "window_ignored": SLIDING,
    "ring_rotated": SLIDING,
    **{name: ["quantize=int8"] for name in CASES if name.startswith("scales")},
    **{name: SPARSE for name in CASES if name.startswith("indexer")},
    **{name: HYBRID for name in CASES if name.startswith(("recurrent", "convolution"))},
}

AFTER = ("position_off_by_one", "position_wrong_after_pruning", "logits_rounded", "blocks_foreign",
         "logits_of_another_step", "stale_by_one", "norm_epsilon_changed")  # fmt: skip
EXCUSED = [  # a model with an index over its keys is never pruned
    pytest.param(name, marks=() if name in AFTER else pytest.mark.slow)
    for name in CASES
    if not name.startswith("indexer")
]


def hit(harness, name, *more):
    sampling = ["sampling=sample"] if name.startswith(("generator", "temp", "top_k", "rep")) else []
    name, *setting = name.split()
    return harness(
        f"fault={name}",
        *(f"fault.{s}" for s in setting),
        "steps=6",
        "threads=1",
        *sampling,
        *NEEDS.get(name, []),
        *more,
    )


def refused_or_worse(done):
    return done.code == 3 or (done.code == 1 and done.result["verdict"] in ("drifted", "diverged"))


@pytest.mark.parametrize("name", QUICK)
def test_strict_never_calls_it_the_same_thought(harness, name):
    done = hit(harness, name)
    assert refused_or_worse(done), done.out
    assert "Traceback" not in done.out


@pytest.mark.parametrize("name", EXCUSED)
def test_a_pruning_excuses_no_fault(harness, name):
    """Other tokens are a pruned run's to choose; what parts it from the state that was saved is not."""
    done = hit(harness, name, "prune=snapkv", "prune.ratio=0.5")
    assert done.code in (1, 3), done.out
    assert "unexpected" not in done.out


@pytest.mark.parametrize("name", ("query_tuned", "layer_swap", "vocabulary_resized"))
def test_waived_it_is_measured_and_still_not_equivalent(harness, name):
    done = hit(harness, name, "restore.strict=false")
    assert done.code == 1, done.out
    assert done.result["verdict"] in ("drifted", "diverged")
    assert done.result["waived"]


def test_no_fault_is_clean(harness):
    done = hit(harness, "none")
    assert done.code == 0
    assert done.result["verdict"] in ("exact", "equivalent")


def test_a_fault_without_its_bed_is_refused_with_the_remedy(harness):
    done = harness("fault=padding_unmasked", "steps=2")
    assert done.code == 2
    assert "prompt.batch=2" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("strict", ("true", "false"))
@pytest.mark.parametrize("name", CASES)
def test_every_fault_through_the_main_line(harness, name, strict):
    done = hit(harness, name, f"restore.strict={strict}")
    assert "Traceback" not in done.out
    assert refused_or_worse(done), done.out
