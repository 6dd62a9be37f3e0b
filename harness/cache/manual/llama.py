"""The Llama forward, written out: embed, per layer norm, Q/K/V, RoPE at absolute positions, read-only
attention, residual, norm, SwiGLU, residual; final norm, head.

Source: the isolation document's Route B; weights and RoPE are the loaded modules' own.
"""

from typing import Any

import torch

from harness.cache.manual.pieces import merge_heads, rotate, split_heads


def forward(model: Any, ids: torch.Tensor, positions: torch.Tensor, memory: Any) -> torch.Tensor:
    """Logits `[batch, new, vocab]` of `ids` `[batch, new]` at `positions` `[batch, new]`.

    memory: see `Memory.attend`; only its tails grow. Mutates neither the model nor the past.
    """
    body = model.model
    hidden = body.embed_tokens(ids)
    cos, sin = body.rotary_emb(hidden, positions)
    for index, layer in enumerate(body.layers):
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        query = split_heads(attention.q_proj(normed), attention.head_dim)
        key = split_heads(attention.k_proj(normed), attention.head_dim)
        value = split_heads(attention.v_proj(normed), attention.head_dim)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        out = memory.attend(index, query, key, value, attention.scaling)
        hidden = hidden + attention.o_proj(merge_heads(out))
        normed = layer.post_attention_layernorm(hidden)
        mlp = layer.mlp
        hidden = hidden + mlp.down_proj(mlp.act_fn(mlp.gate_proj(normed)) * mlp.up_proj(normed))
    return model.lm_head(body.norm(hidden))
