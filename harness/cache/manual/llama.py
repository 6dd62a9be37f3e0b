"""The Llama forward, written out: embed, per layer norm, Q/K/V, RoPE at absolute positions, read-only
attention, residual, norm, SwiGLU, residual; final norm, head. Llama, Mistral, Qwen2 and Qwen3 (which
normalizes queries and keys per head).

Source: the isolation document's Route B; weights and RoPE are the loaded modules' own.
"""

from typing import Any

import torch

from harness.cache.manual.pieces import (
    gated_mlp,
    merge_heads,
    rms_norm,
    rotate,
    split_heads,
    turning,
)
from harness.cache.manual.whole import step as step
from harness.cache.projections import linear, linears


def refuses(config: Any) -> str | None:
    """Why this forward cannot serve a model with `config`, or None."""
    return None


def window(config: Any, index: int) -> int | None:
    """How far back layer `index` looks, in tokens including its own, or None."""
    kinds = getattr(config, "layer_types", None)
    if config.model_type == "llama" or (kinds and kinds[index] != "sliding_attention"):
        return None
    return getattr(config, "sliding_window", None)


def forward(model: Any, ids: torch.Tensor, positions: torch.Tensor, memory: Any) -> torch.Tensor:
    """Logits `[rows, new, vocab]` of `ids` `[rows, new]` at `positions` `[rows, new]`.

    memory: see `Memory`; only its tails grow. Mutates neither the model nor the past.
    """
    body = model.get_decoder()
    hidden = body.embed_tokens(ids)
    turn = turning(*body.rotary_emb(hidden, positions))
    for index, layer in enumerate(body.layers):
        attention = layer.self_attn
        normed = rms_norm(layer.input_layernorm, hidden)
        made = linears(normed, attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (split_heads(one, attention.head_dim) for one in made)
        if hasattr(attention, "q_norm"):
            query, key = rms_norm(attention.q_norm, query), rms_norm(attention.k_norm, key)
        turned = rotate(torch.cat((query, key), dim=1), turn)
        query, key = turned.split((query.shape[1], key.shape[1]), dim=1)
        memory.append(index, key, value)
        out = memory.attend(index, query, attention.scaling)
        hidden = hidden + linear(attention.o_proj, merge_heads(out))
        hidden = hidden + gated_mlp(layer.mlp, rms_norm(layer.post_attention_layernorm, hidden))
    return linear(model.get_output_embeddings(), rms_norm(body.norm, hidden))
