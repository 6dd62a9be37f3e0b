"""`cache=auto` takes the fastest implementation that serves the model, and says which."""

import pytest
import torch

from harness.cache.registry import decoder, served
from harness.capture import capture
from harness.config import CacheConfig, ModelConfig
from harness.errors import UnsupportedModel
from harness.model.loaded import load

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "vocab_size": 96,
    "initializer_range": 0.1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
SERVED = {
    "llama": ("manual", {}),
    "olmo2": ("view", {}),
    "bloom": ("cloned", {}),  # refused by `view` when the first token is fed
    "mamba": ("view", {"state_size": 8}),
}


def state_of(family: str, **values):
    settings = ModelConfig(name=family, architecture=family, config={**SMALL, **values})
    loaded = load(settings, "float32", "cpu")
    ids = torch.arange(5, 25)[None]
    return loaded, capture(loaded, ids, torch.ones_like(ids), {}).state


@pytest.mark.parametrize("family", SERVED)
def test_the_fastest_that_serves(family: str) -> None:
    name, values = SERVED[family]
    loaded, state = state_of(family, **values)
    ids = torch.arange(30, 36)[None]
    auto = decoder(loaded, state, CacheConfig(name="auto"))
    before = auto.fingerprint(True)
    logits = auto.step(ids)
    assert served(auto)["served"] == name
    assert torch.equal(logits, decoder(loaded, state, CacheConfig(name=name)).step(ids))
    assert auto.fingerprint(True) == before
    assert auto.commit().tokens == state.tokens + 6
    for passed, why in served(auto)["passed_over"].items():
        with pytest.raises(UnsupportedModel) as refusal:
            decoder(loaded, state, CacheConfig(name=passed)).step(ids)
        assert str(refusal.value) == why


def test_a_refusal_in_the_middle_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handing over after tokens were fed would forget them."""
    loaded, state = state_of("olmo2")
    auto = decoder(loaded, state, CacheConfig(name="auto"))
    auto.step(torch.tensor([[7]]))

    def refuse(*_):
        raise UnsupportedModel("not any more")

    monkeypatch.setattr(auto._decoder, "forward", refuse)
    with pytest.raises(UnsupportedModel, match="not any more"):
        auto.step(torch.tensor([[8]]))
    assert served(auto)["served"] == "view"


@pytest.mark.parametrize("family, values", [
    ("recurrent_gemma", {"head_dim": 16, "lru_width": 64, "attention_window_size": 16, "num_hidden_layers": 3}),
    ("rwkv", {"attention_hidden_size": 64}),
    ("openai-gpt", {"n_embd": 64, "n_layer": 2, "n_head": 4}),
])  # fmt: skip
def test_state_outside_the_cache_is_refused_at_capture_by_name(family: str, values) -> None:
    with pytest.raises(UnsupportedModel, match=family):
        state_of(family, **values)
