"""The GPT-2 forward, written out: token and learned position embeddings, per layer LayerNorm, one
projection for Q, K and V, read-only attention, residual, LayerNorm, MLP, residual; final norm, head.

Weights are the loaded modules' own. Source: Radford et al. 2019, as the library loads it.
"""

from typing import Any

import torch

from harness.cache.manual.pieces import merge_heads, split_heads


def refuses(config: Any) -> str | None:
    """Why this forward cannot serve a model with `config`, or None."""
    return "it has cross-attention" if config.add_cross_attention else None


def heads(config: Any) -> tuple[int, int]:
    """`(kv_heads, head_dim)`; what else a config says of KV heads, this family does not read."""
    return config.num_attention_heads, config.hidden_size // config.num_attention_heads


def window(config: Any, index: int) -> int | None:
    """How far back layer `index` looks, in tokens including its own, or None."""
    return None


def forward(model: Any, ids: torch.Tensor, positions: torch.Tensor, memory: Any) -> torch.Tensor:
    """Logits `[rows, new, vocab]` of `ids` `[rows, new]` at `positions` `[rows, new]`.

    memory: see `Memory`; only its tails grow. Mutates neither the model nor the past.
    """
    body = model.get_decoder()
    hidden = body.wte(ids) + body.wpe(positions)
    for index, layer in enumerate(body.h):
        attention = layer.attn
        projected = attention.c_attn(layer.ln_1(hidden)).chunk(3, dim=-1)
        query, key, value = (split_heads(p, attention.head_dim) for p in projected)
        memory.append(index, key, value)
        out = memory.attend(index, query, attention.scaling)
        hidden = attention.c_proj(merge_heads(out)) + hidden
        hidden = hidden + layer.mlp(layer.ln_2(hidden))
    return model.get_output_embeddings()(body.ln_f(hidden))
