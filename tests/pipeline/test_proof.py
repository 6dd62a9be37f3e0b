"""The proof: the last token, fed again over the past without it, must give the stored logits."""

from dataclasses import replace

import pytest

from harness.config import CacheConfig
from harness.fault import edit
from harness.pipeline.restore import noise, one_step_back, proof

CACHES = ("manual", "cloned", "dynamic")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_healthy_states_prove_themselves(captured, cache, dtype):
    session, made = captured(f"dtype={dtype}", "prompt.batch=2", "text='let k be 5 . let m be 42 . what is k ?'")  # fmt: skip
    assert proof(session.loaded, made.state, CacheConfig(cache)) == []


@pytest.mark.parametrize("cache", CACHES)
def test_a_damaged_value_or_logit_breaks_the_proof(captured, cache):
    session, made = captured("text='let k be 5 . what is k ?'")
    damaged = edit.layers(made.state, value=lambda v: v + 0.01 * v.std())
    assert proof(session.loaded, damaged, CacheConfig(cache))
    other = replace(made.state, logits=made.state.logits + 100 * noise(session.loaded, made.state))
    assert proof(session.loaded, other, CacheConfig(cache))


def test_the_state_is_only_read(captured):
    session, made = captured("text='let k be 5 . what is k ?'")
    before = [(name, t.clone()) for name, t in made.state.tensors()]
    proof(session.loaded, made.state, CacheConfig("manual"))
    assert all((t == old).all() for (_, old), (_, t) in zip(before, made.state.tensors()))


def test_where_the_past_is_not_whole_no_proof_is_asked_for(captured):
    import torch

    _, made = captured("text='let k be 5 . what is k ?'")
    assert one_step_back(edit.select(made.state, torch.arange(3, made.state.tokens))) is None
    _, slid = captured("model=tiny_gemma3", "cache=cloned", f"text='{'let k be 5 . ' * 12}'")
    assert one_step_back(slid.state) is None
