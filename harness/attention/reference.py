"""Attention in one plain piece: the oracle that split attention is tested against.

Joins everything, repeats heads, works in the widest dtype it is given. Slow and obvious on purpose.
"""

from math import inf

import torch


def reference_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_positions: torch.Tensor,
    query_positions: torch.Tensor,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`[batch, heads, new, value_dim]` in the dtype of the arguments, all of one dtype.

    query: `[batch, heads, new, head_dim]`; key, value: `[batch, kv_heads, tokens, head_dim]`;
    key_positions: `[batch, tokens]`; query_positions: `[batch, new]`. The rest as in
    `split_attention`. A query that may see no key gets zeros. Mutates nothing.
    """
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    old, new = key_positions[:, None, None, :], query_positions[:, None, :, None]
    seen = (old >= 0) & (old <= new)
    if window is not None:
        seen = seen & (old > new - window)
    scores = scores.masked_fill(~seen, -inf)
    value = torch.nn.functional.pad(value, (0, 0, 0, 1))  # one more key, worth nothing: the sink
    last = scores.new_full((*scores.shape[:-1], 1), -inf)
    if sinks is not None:
        last = sinks[None, :, None, None].expand_as(last)
    scores = torch.cat([scores, last], -1)
    weights = torch.softmax(scores, -1)
    return torch.where(weights.isnan(), 0.0, weights) @ value
