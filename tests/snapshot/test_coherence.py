"""Elements must agree with each other: each rule has a damaged twin that it has to name."""

from dataclasses import replace

import pytest
import torch

from harness.fault import edit
from harness.snapshot import coherence


@pytest.fixture
def state(captured):
    return captured("text='let k be 5 . what is k ?'")[1].state


TWINS = {
    "layout": (lambda s: s.document("kv_format", layout="[tokens]"), "layout"),
    "version": (lambda s: s.document("kv_format", version=7), "K/V format 7"),
    "dtype": (lambda s: s.document("kv_format", dtype="float16"), "format document says"),
    "mask": (lambda s: replace(s, attention_mask=s.attention_mask.flip(1) * torch.arange(s.tokens).flip(0)[None].clamp(max=1)), "hides a token"),
    "cache at older places": (lambda s: edit.select(s, torch.arange(s.tokens), lambda p: p - 1), "the last position is not next_position - 1"),
    "cursor": (lambda s: replace(s, next_position=s.next_position + 1), "next_position"),
    "cache behind": (lambda s: edit.select(s, torch.arange(s.tokens - 1)), "no pruning is recorded"),
    "buffer": (lambda s: replace(s, token_ids=s.token_ids.flip(1)), "recorded prefix"),
    "sent ids": (lambda s: replace(s, token_ids=torch.cat([s.token_ids[:, :-2], s.token_ids[:, -2:].flip(1)], 1)), "ids that were sent"),
}  # fmt: skip


def test_a_healthy_state_agrees_with_itself(state):
    assert coherence.faults(state) == []


@pytest.mark.parametrize("name", TWINS)
def test_a_disagreement_is_named(name, state):
    damage, words = TWINS[name]
    assert any(words in fault for fault in coherence.faults(damage(state))), coherence.faults(
        damage(state)
    )


def test_recorded_pruning_is_not_a_disagreement(state):
    small = edit.select(state, torch.arange(2, state.tokens))
    assert coherence.faults(small)
    assert coherence.faults(small.document("kv_format", pruned=[{"policy": "keep_last"}])) == []


def test_pruning_at_original_positions_moves_no_cursor(state):
    entry = {"policy": "keep_last", "positions": "original"}
    small = edit.select(state, torch.arange(2, state.tokens)).document("kv_format", pruned=[entry])
    assert coherence.faults(small) == []
    ahead = replace(small, next_position=small.next_position + 5)
    assert "next_position" in str(coherence.faults(ahead))
    fewer = {n: getattr(small, n)[:, 1:] for n in ("token_ids", "attention_mask")}
    assert "the buffer holds" in str(coherence.faults(replace(small, **fewer)))
    moved = ahead.document("kv_format", pruned=[{**entry, "positions": "reindexed"}])
    assert coherence.faults(moved) == []


def test_left_padding_is_not_a_disagreement(captured):
    padded = captured("text='let k be 5 . what is k ? k is 5 .'", "prompt.batch=2")[1].state
    assert not bool(padded.attention_mask.all())
    assert coherence.faults(padded) == []
