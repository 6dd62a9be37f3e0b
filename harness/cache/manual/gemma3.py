"""The Gemma 3 forward, written out: scaled embedding, normalized queries and keys, two RoPE bases,
sliding and full layers, norms before and after attention and MLP, gated GELU; final norm, head.

Weights and RoPE are the loaded modules' own. Source: the Gemma 3 report, as the library loads it.
"""

from typing import Any

import torch

from harness.cache.manual.pieces import (
    gated_mlp,
    merge_heads,
    rotate,
    split_heads,
    turning,
)
from harness.cache.projections import linear, linears


def refuses(config: Any) -> str | None:
    """Why this forward cannot serve a model with `config`, or None."""
    return "its attention is bidirectional" if config.use_bidirectional_attention else None


def window(config: Any, index: int) -> int | None:
    """How far back layer `index` looks, in tokens including its own, or None."""
    return config.sliding_window if config.layer_types[index] == "sliding_attention" else None


def forward(model: Any, ids: torch.Tensor, positions: torch.Tensor, memory: Any) -> torch.Tensor:
    """Logits `[rows, new, vocab]` of `ids` `[rows, new]` at `positions` `[rows, new]`.

    memory: see `Memory`; it knows each layer's window. Mutates neither the model nor the past.
    """
    body = model.get_decoder()
    config = body.config
    hidden = body.embed_tokens(ids)
    turns = {k: turning(*body.rotary_emb(hidden, positions, k)) for k in set(config.layer_types)}
    for index, (layer, kind) in enumerate(zip(body.layers, config.layer_types, strict=True)):
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        made = linears(normed, attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (split_heads(one, attention.head_dim) for one in made)
        query, key = attention.q_norm(query), attention.k_norm(key)
        memory.append(index, rotate(key, turns[kind]), value)
        out = memory.attend(index, rotate(query, turns[kind]), attention.scaling)
        out = linear(attention.o_proj, merge_heads(out))
        hidden = hidden + layer.post_attention_layernorm(out)
        out = gated_mlp(layer.mlp, layer.pre_feedforward_layernorm(hidden))
        hidden = hidden + layer.post_feedforward_layernorm(out)
    logits = linear(model.get_output_embeddings(), body.norm(hidden))
    cap = config.final_logit_softcapping
    return logits if cap is None else torch.tanh(logits / cap) * cap
