"""A chat on a model whose next tokens are near ties: what rounding decides is no other thought, what a damaged
cache says is. The caches are from outside, and each does what it does to one side only: to the chat that was
restored, or to the one that went on."""

import json
import sys

import pytest

CACHES = """
import copy
from dataclasses import replace

import torch

from harness.cache import LibraryDecoder

BEGUN = 30  # tokens; with more it is a chat that was restored


class Plain(LibraryDecoder):
    def working_copy(self, cache):
        return copy.deepcopy(cache)


class Nudged(Plain):
    def forward(self, ids, positions):
        logits = super().forward(ids, positions)
        if (self.past.tokens < BEGUN) is not (self.settings.side == "going"):
            return logits
        much = self.settings.much * torch.finfo(logits.dtype).eps * logits.abs().max()
        return logits + much * (2 * (torch.arange(logits.shape[-1]) % 2) - 1)


class Exchanged(Plain):
    def __init__(self, loaded, state, settings):
        if state.tokens >= BEGUN:
            state = state.with_layers(tuple(map(exchanged, state.layers)))
        super().__init__(loaded, state, settings)


def exchanged(layer):
    parts = [replace(s, value=s.value.flip(2)) for s in layer.segments]
    return replace(layer, segments=tuple(parts))
"""
TURNS = "task.turns=[" + ",".join(["{ask: 'let k be 5 .'}", "{ask: 'what is k ?'}"] * 2) + "]"
MODEL = (
    "model=shape", "model.config.num_hidden_layers=4", "model.config.hidden_size=64", "dtype=bfloat16", "+model.config.initializer_range=0.1",
    "model.config.intermediate_size=128", "model.config.head_dim=16", "model.config.num_attention_heads=4",
)  # fmt: skip
DRAWN = ("sampling=sample", "sampling.temperature=0.7")


@pytest.fixture
def chat(harness, place, monkeypatch):
    """The chat with one of the caches from outside."""
    (place / "conf" / "cache").mkdir(parents=True)
    (place / "my_caches.py").write_text(CACHES)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(cache, *overrides, side="restored", much=1.0):
        """On the first of some models on which the restored chat says something else: the run, its turns, and
        the numbers of those."""
        yaml = f"_target_: my_caches.{cache}\nname: mine\nside: {side}\nmuch: {much}\n"
        (place / "conf" / "cache" / "mine.yaml").write_text(yaml)
        own = ("--config-dir", "conf", "plugins.path=.", "cache=mine", "steps=12", "threads=1")
        for seed in range(8):
            given = (TURNS, "task.naive=false", *own, *MODEL, f"model.seed={seed}", *overrides)
            done = harness("task=chat", *given)
            rows = json.loads((done.folders[0] / "chat.json").read_text())
            if others := [row["turn"] + 1 for row in rows if row["restored_equal"] is False]:
                return done, rows, others
        raise AssertionError("no turn is said otherwise: the test is about nothing")

    yield run
    sys.modules.pop("my_caches", None)


@pytest.mark.parametrize(
    "sampling", [(), pytest.param(DRAWN, marks=pytest.mark.slow)], ids=["greedy", "drawn"]
)
def test_another_token_at_a_near_tie_is_the_same_thought(chat, sampling):
    done, rows, others = chat("Nudged", *sampling)
    assert done.code == 0 and done.result["verdict"] == "equivalent", done.out
    near = [row["turn"] + 1 for row in rows if row.get("restored_verdict") == "equivalent"]
    assert near == others
    assert "but for a near tie in turn" in done.reason
    assert str(others[-1]) in done.reason.partition("near tie in")[2]
    shown = [line.split("|") for line in done.out.splitlines() if line.count("|") == 2]
    assert [int(t) for t, _, said in shown[1:] if "near tie" in said] == others  # the same numbers


@pytest.mark.parametrize("sampling", [(), DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize(("cache", "side"), [("Exchanged", "restored"), ("Nudged", "going")])
def test_what_a_damaged_cache_says_is_another_thought(chat, cache, side, sampling):
    """Also where it was the one that went on, whose logits nobody kept."""
    done, rows, others = chat(cache, *sampling, side=side, much=4.0)
    assert done.code == 1 and done.result["verdict"] == "diverged", done.out
    wrong = [row["turn"] + 1 for row in rows if row.get("restored_verdict") == "diverged"]
    assert wrong and set(wrong) <= set(others)
    assert done.result["chat"]["judged_turn"] in wrong
    assert f"of turn {done.result['chat']['judged_turn']}" in done.result["conclusion"]
    assert "[" not in done.reason and "with other tokens" in done.reason
