"""States made by hand and seeded random models: small, exact, and without a tokenizer."""

from functools import cache
from types import MappingProxyType

import pytest
import torch

from harness.capture import capture, pad_left
from harness.config import option
from harness.model.loaded import Loaded
from harness.snapshot.state import FULL, SLIDING, LayerState, Segment, State

SHAPE = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
}  # fmt: skip


def settings(name, **given):
    """The option of `prune` with a budget of half unless one is given."""
    if not {"tokens", "ratio"} & set(given):
        given["ratio"] = 0.5
    return option("prune", name, **given)


GENERATION = {"sampler": {"name": "greedy"}, "steps": 0}


def by_hand(keys, windows=(None,), lengths=None, received=None):
    """A State whose keys are `keys` `[batch, kv_heads, tokens, head_dim]` in every layer.

    lengths: real tokens per row (the rest is padding on the left). A layer with a window holds
    its last `window - 1` tokens. received: `[batch, kv_heads, rows, tokens]`, or `[batch, rows,
    tokens]` as format 1 stored it.
    """
    batch, _, tokens, _ = keys.shape
    lengths = torch.tensor(lengths or [tokens] * batch)
    positions = torch.arange(tokens)[None] - (tokens - lengths)[:, None]
    layers = []
    for index, window in enumerate(windows):
        held = tokens if window is None else min(tokens, window - 1)
        cut = tokens - held
        seen = None if received is None else received[..., cut:]
        segment = Segment(keys[:, :, cut:], -keys[:, :, cut:], positions[:, cut:].contiguous())
        kind = FULL if window is None else SLIDING
        layers.append(LayerState(index, kind, (segment,), tokens, window, received=seen))
    described = [{"index": i, "kind": la.kind, "window": la.window, "recurrent": []} for i, la in enumerate(layers)]  # fmt: skip
    documents = {
        "kv_format": {"layers": described, "libraries": {}, "attention_implementation": "sdpa"},
        "prompt_meta": {"prefix_ids": [0, 1, 2]},
        "generation": GENERATION,
        "tokenizer": {},
    }
    state = State(
        layers=(),
        token_ids=torch.zeros(batch, tokens, dtype=torch.int64),
        attention_mask=(positions >= 0).long(),
        next_position=positions[:, -1] + 1,
        logits=torch.zeros(batch, 3),
        rng=torch.Generator().get_state(),
        documents=MappingProxyType(documents),
    )
    return state.with_layers(tuple(layers))


@cache
def build(architecture="llama", layers=2, seed=0, dtype=torch.float32, **values):
    """A seeded random model as a Loaded, without a tokenizer. Weights are made larger than the
    library's own initialisation, so that attention is far from uniform."""
    from transformers import AutoConfig, AutoModelForCausalLM

    given = {**SHAPE, "num_hidden_layers": layers, **values}
    if architecture in ("gpt2", "bloom"):
        given = {"vocab_size": 97, "hidden_size": 32, "n_embd": 32, "n_head": 4, "n_layer": layers, "n_positions": 512, **values}  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **given))
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.mul_(6)
    return Loaded(model.to(dtype).eval(), None, {"name": architecture}, 0.0)


def take(loaded, rows, **how):
    """Capture rows of ids, padded on the left."""
    ids, mask = pad_left(rows, 0)
    prompt = {"prefix_ids": list(rows[0][:1])}
    documents = {"prompt_meta": prompt, "generation": GENERATION, "tokenizer": {}}
    return capture(loaded, ids, mask, documents, **how)


def ids_of(tokens, seed=0, vocab=97):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, vocab, (tokens,), generator=generator).tolist()


@pytest.fixture(scope="session")
def llama():
    return build()


@pytest.fixture(scope="session")
def gemma():
    """Sliding and full layers, two RoPE bases, QK norm; the window is shorter than the prompts."""
    return build("gemma3_text", layers=6, sliding_window=12, query_pre_attn_scalar=8)
