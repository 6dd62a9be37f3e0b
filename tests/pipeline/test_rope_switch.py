"""A model whose RoPE factors switch at a length goes on as a run without a cache would."""

from typing import Any

import pytest
import torch

import harness
from harness.capture import capture
from harness.config import CacheConfig, CompareConfig, ModelConfig, SamplingConfig, option
from harness.model.loaded import Loaded, load
from harness.model.sampler import Sampler
from harness.model.switch import crosses, switch_of
from harness.pipeline import drive, yardstick
from harness.pipeline.budget import continuation
from harness.pipeline.judge import judge
from harness.pipeline.rope_switch import Switching, decoder

AT = 24
ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "factor": 32.0,
    "original_max_position_embeddings": AT,
    "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
}  # fmt: skip
VALUES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 300,
    "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.12, "head_dim": 8,
    "rope_parameters": ROPE, "original_max_position_embeddings": AT, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture
def phi() -> Loaded:
    return load(ModelConfig("shape", architecture="phi3", config=VALUES), "float32", "cpu")


def _continued(phi: Loaded, tokens: int, piece: int, cache: str) -> tuple[Any, Any, drive.Rollout]:
    seeded = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 300, (1, tokens), generator=seeded)
    given = torch.randint(3, 300, (1, piece), generator=seeded) if piece else None
    state = capture(phi, ids, torch.ones_like(ids), {}).state
    runner = continuation(phi, state, CacheConfig(cache), option("prune", "none"))
    return state, runner, drive.drive(runner, Sampler(SamplingConfig("greedy")), 12, given)


@pytest.mark.parametrize("cache", ["cloned", "view", "dynamic"])
@pytest.mark.parametrize("tokens, piece", [(18, 0), (AT, 0), (AT - 1, 0), (20, 8), (AT + 1, 0)])
def test_it_chooses_what_a_run_without_a_cache_chooses(
    phi: Loaded, tokens: int, piece: int, cache: str
) -> None:
    state, runner, path = _continued(phi, tokens, piece, cache)
    exact = yardstick.alone(phi.oracle, state, path.fed, chunks=path.chunks)
    plain = yardstick.alone(phi, state, path.fed, chunks=path.chunks)
    error = (path.logits.double() - exact).abs().max()
    assert error <= 4 * (plain.double() - exact).abs().max()
    assert torch.equal(path.logits[:, piece:].argmax(-1), exact[:, piece:].argmax(-1))
    grown = runner.commit()  # and one more step on both sides
    assert grown.tokens == tokens + piece + 12
    more = torch.tensor([[7]])
    again = continuation(phi, grown, CacheConfig(cache), option("prune", "none")).step(more)
    gap = (again - runner.step(more)).abs().max()
    assert gap <= 4 * (plain.double() - exact).abs().max()


def test_the_judge_finds_it_sound(phi: Loaded) -> None:
    state, _, path = _continued(phi, 18, 0, "cloned")
    ids, mask = state.token_ids, state.attention_mask
    live = drive.Uninterrupted(phi, capture(phi, ids, mask, {}).live, state)
    reference = drive.drive(live, Sampler(SamplingConfig("greedy")), 12)
    judged = judge(phi, state, reference, path, CompareConfig("lossless", noise_chunk=5))
    assert judged.verdict in ("exact", "equivalent"), judged.reason


def test_only_a_past_before_the_switch_crosses_it() -> None:
    assert crosses(24, 24, 25) and crosses(24, 20, 30)
    assert not crosses(24, 0, 30) and not crosses(24, 25, 26) and not crosses(24, 20, 24)
    assert not crosses(None, 20, 30)


def test_other_models_never_switch() -> None:
    assert switch_of(type("Config", (), {"rope_parameters": {"rope_type": "default"}})()) is None


def test_python_and_a_chat_pass_the_switch_as_the_command_line_does(phi) -> None:
    """Their tokens are those of whole passes without any cache."""
    prompt = torch.randint(3, 300, (1, AT - 5), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        cache = phi.model(prompt, use_cache=True).past_key_values
    state = harness.from_cache(phi, cache, prompt)
    steps = 12
    said = harness.resume(phi, state, steps=steps, sampling="greedy", eos_token_id=[])
    list(said)
    ids = state.token_ids[0].tolist()
    for chosen in said.ids:
        assert chosen == int(phi.uncached(torch.tensor([ids]), 1)[0, -1].argmax())
        ids.append(chosen)
    assert len(said.ids) == steps
    assert harness.judge(phi, state, steps=steps).verdict in ("exact", "equivalent")
    branched = decoder(phi, state, CacheConfig("cloned", branches=2))
    assert isinstance(branched, Switching) and branched.state.batch == 2
