"""Against kvpress, in an environment of its own: the same tokens kept where the definition is the same,
and at least its recall everywhere.

`make peers` builds that environment and runs this. HARNESS_KVPRESS names its Python; without it the
test is skipped and says so. Tensors are exchanged as files; no line of kvpress runs in this process.
"""

import json
import os
import random
import subprocess
from contextlib import ExitStack
from math import sqrt
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from harness.cache.registry import decoder
from harness.capture import capture
from harness.capture.observe import observing, received
from harness.config import CacheConfig
from harness.model.loaded import Loaded
from harness.prune.base import EVERY_QUERY, EXPECTED
from harness.prune.registry import policy

from .conftest import settings

PYTHON = os.environ.get("HARNESS_KVPRESS")
PEERS = Path(__file__).parent / "peers"
SIDE, KEPT, ASKED = PEERS / "kvpress_side.py", PEERS / "kept.safetensors", PEERS / "asked.json"
TINY = Path(__file__).parents[2] / "harness" / "model" / "assets" / "tiny"
RATIOS, STEPS, WINDOW, MANY = (0.1, 0.25, 0.5), 6, 8, 80
OBSERVED = (EVERY_QUERY, EXPECTED, WINDOW, 1)

# what is the very definition of kvpress, by our names
SAME = {
    "sink_window": {},
    "knorm": {},
    "keydiff": {},
    "tova": {"per_head": False},
    "snapkv": {"window": WINDOW},
    "heavy_hitter": {"recent": 0.0, "average": True},
    "expected_attention": {},
}
# what is compared as it comes
DEFAULTS = ("keydiff", "tova", "snapkv", "heavy_hitter", "expected_attention", "random")


def dialogues(tokenizer):
    """Held-out dialogues with the question apart: ids as both sides feed them."""
    from harness.model.assets import corpus
    from harness.tokenizer.policy import continuation, encode

    made = []
    for seed in range(MANY):
        distance = random.Random(seed).choice([64, 96, 128, 192])
        told = corpus.recall_dialogue(random.Random(77_000 + seed), distance, 4)
        question = corpus.ask(told.name)
        context = told.text.removesuffix(question).rstrip()
        made.append(
            {
                "context": list(encode("explicit", tokenizer, context, (), True).ids),
                "question": list(continuation("explicit", tokenizer, " " + question).ids),
                "expected": told.answer.strip(),
            }
        )
    return made


@pytest.fixture(scope="module")
def tiny():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    return Loaded(model, AutoTokenizer.from_pretrained(TINY), {"name": "tiny"}, 0.0)


@pytest.fixture(scope="module")
def peers(tiny, tmp_path_factory):
    """`(dialogues, what kvpress answered, what it kept)`."""
    if not PYTHON:
        pytest.skip("kvpress is not installed: HARNESS_KVPRESS names no Python (make peers)")
    place = tmp_path_factory.mktemp("peers")
    asked = dialogues(tiny.tokenizer)
    (place / "asked.json").write_text(json.dumps(asked))
    given = [TINY, place / "asked.json", place / "said.json", place / "kept.safetensors"]
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([PYTHON, str(SIDE), *map(str, given)], check=True, env=env, timeout=1800)
    said = json.loads((place / "said.json").read_text())
    return asked, said, load_file(given[3])


def seen(loaded, one):
    """The context as a State, by what was observed of it."""
    ids = torch.tensor([one["context"]])
    documents = {"prompt_meta": {"prefix_ids": []}}
    with ExitStack() as stack:
        watched = {n: stack.enter_context(observing(loaded, n)) for n in OBSERVED}
        state = capture(loaded, ids, torch.ones_like(ids), documents).state
    return {None: state, **{n: received(state, what) for n, what in watched.items()}}


def answer(loaded, state, one):
    runner = decoder(loaded, state, CacheConfig(name="manual"))
    ids, chosen = torch.tensor([one["question"]]), []
    for _ in range(STEPS):
        chosen.append(int(runner.step(ids)[0, -1].argmax()))
        ids = torch.tensor([chosen[-1:]])
    return loaded.tokenizer.decode(chosen)


@pytest.mark.parametrize("name", sorted(SAME))
def test_the_same_definition_keeps_the_same_tokens(tiny, name):
    """Head by head, against what kvpress kept (recorded beside this file); where they differ, the
    scores there are equal but for float32's rounding."""
    kept, asked = load_file(KEPT), json.loads(ASKED.read_text())
    for number, one in enumerate(asked):
        states = seen(tiny, one)
        for ratio in RATIOS:
            theirs = kept[f"{name}/{ratio}/{number}"].long()  # [layers, kv_heads, kept]
            ours = policy(settings(name, tokens=theirs.shape[2], **SAME[name]))
            if name == "snapkv" and theirs.shape[2] < 2 * WINDOW:
                continue  # ours never lets the window take more than half of the budget
            whole = states[ours.observes]
            for old, new, expected in zip(whole.layers, ours.prune(whole).layers, theirs, strict=True):  # fmt: skip
                heads = len(expected)
                mine = by_head(new.positions[0], heads)
                worth = by_head(ours._scored(old, new.kept, 0)[0], heads)
                for head in range(heads):
                    odd = sorted(set(mine[head].tolist()) ^ set(expected[head].tolist()))
                    real = worth[head][worth[head].abs() < 1e100].abs().max()
                    assert not odd or float(worth[head][odd].diff().abs().max()) <= 1e-5 * real, odd


def by_head(rows, heads):
    return rows if rows.dim() == 2 else rows.expand(heads, -1)


def test_another_policy_keeps_other_tokens(tiny):
    """The twin: what kvpress kept by keydiff is not what snapkv keeps."""
    kept, (one, *_) = load_file(KEPT), json.loads(ASKED.read_text())
    theirs = kept["keydiff/0.25/0"].long()
    chosen = policy(settings("snapkv", tokens=theirs.shape[2]))
    small = chosen.prune(seen(tiny, one)[WINDOW])
    assert not any(torch.equal(la.positions[0], t) for la, t in zip(small.layers, theirs, strict=True))  # fmt: skip


@pytest.mark.slow
def test_what_is_recorded_is_what_kvpress_keeps(peers):
    *_, fresh = peers
    recorded = load_file(KEPT)
    assert set(recorded) == set(fresh)
    assert all(torch.equal(recorded[name], fresh[name]) for name in recorded)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
def test_recall_is_at_least_theirs(tiny, peers, name):
    """Asked after pruning, of the same budget; below theirs by no more than one dialogue, where
    equal scores were cut in another order (random: two standard errors, its draws being others)."""
    asked, said, _ = peers
    states = [seen(tiny, one) for one in asked]
    for ratio in RATIOS:
        theirs = sum(one["expected"] in text for one, text in zip(asked, said[f"{name}/{ratio}"], strict=True))  # fmt: skip
        ours = 0
        for one, held in zip(asked, states, strict=True):
            count = max(1, int(held[None].tokens * (1 - (1 - ratio))))  # as kvpress counts it
            chosen = policy(settings(name, tokens=count))
            text = answer(tiny, chosen.prune(held[chosen.observes]), one)
            ours += one["expected"] in text
        p = theirs / len(asked)
        slack = 2 * sqrt(2 * len(asked) * p * (1 - p)) if name == "random" else 1
        print(f"{name} at {ratio}: ours {ours / len(asked):.3f}, kvpress {p:.3f}")
        assert ours >= theirs - slack, (ratio, ours, theirs)
