"""The two matrix products of attention, by the kernels of the device that the tensors are on."""

import torch

from harness.attention.kernels import cpu, cuda


def scores(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`query` `[n, rows, head_dim]` times `key` `[n, tokens, head_dim]`: `[n, rows, tokens]`, at
    least float32."""
    return (cuda if key.is_cuda else cpu).scores(query, key)


def values(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`weights` `[n, rows, tokens]` times `value` `[n, tokens, head_dim]`: `[n, rows, head_dim]`, at
    least float32."""
    return (cuda if value.is_cuda else cpu).values(weights, value)


def one_by_one(stored: torch.Tensor) -> bool:
    """Whether the heads of all rows of `[batch, heads, tokens, head_dim]` lie at even steps, so that
    batch and heads are viewed as one dimension."""
    return len(stored) == 1 or stored.stride(0) == stored.shape[1] * stored.stride(1)
