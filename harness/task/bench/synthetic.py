"""A past of any length without a prefill: random K/V with the shapes, windows and scale of the model."""

from dataclasses import replace

import torch

from harness.capture import capture
from harness.model.loaded import Loaded
from harness.snapshot.state import LayerState, Segment, State


def synthetic_state(loaded: Loaded, tokens: int, seed: int = 0) -> State:
    """A State of `tokens` random tokens that no model ever saw, for measuring speed.

    Two tokens are really prefilled, which gives every layer's kind and shape and the spread of its
    keys and values; recurrent tensors stay those of the two tokens.
    """
    draw = torch.Generator().manual_seed(seed)
    vocabulary = loaded.text_config.vocab_size
    ids = torch.randint(0, vocabulary, (1, tokens), generator=draw)
    seed_ids = ids[:, :2] if tokens > 1 else ids
    real = capture(loaded, seed_ids, torch.ones_like(seed_ids), {}).state
    positions = torch.arange(tokens, device=loaded.device)[None]
    layers = tuple(_stretched(layer, positions, draw) for layer in real.layers)
    return replace(
        real.with_layers(layers),
        token_ids=ids.to(loaded.device),
        attention_mask=torch.ones_like(ids, device=loaded.device),
        next_position=torch.tensor([tokens], device=loaded.device),
    )


def _stretched(layer: LayerState, positions: torch.Tensor, draw: torch.Generator) -> LayerState:
    tokens = positions.shape[1]
    if not layer.segments:
        return replace(layer, seen=tokens if layer.seen else 0)
    length = tokens if layer.window is None else min(tokens, layer.window - 1)

    def drawn(like: torch.Tensor) -> torch.Tensor:
        batch, heads, _, head_dim = like.shape
        values = torch.randn(batch, heads, length, head_dim, generator=draw)
        return values.mul_(float(like.float().std())).to(like)

    key, value = drawn(layer.key), drawn(layer.value)
    segment = Segment(key, value, positions[:, tokens - length :].contiguous())
    return replace(layer, segments=(segment,), seen=tokens)
