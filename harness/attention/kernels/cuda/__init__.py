"""The matrix products of attention on CUDA: batched products that accumulate in float32.

Scores are written to memory once; decode.py and flash.py are the ways around that for half precision.
"""

import torch

HALF = (torch.float16, torch.bfloat16)


def scores(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`query` `[n, rows, head_dim]` times `key` `[n, tokens, head_dim]`: `[n, rows, tokens]`, at
    least float32. Half precision products accumulate and stay in float32."""
    if key.dtype in HALF:
        return torch.bmm(query, key.transpose(1, 2), out_dtype=torch.float32)
    return torch.bmm(query, key.transpose(1, 2))


def values(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`weights` `[n, rows, tokens]` (at least float32) times `value`: `[n, rows, head_dim]`."""
    if value.dtype in HALF:
        return torch.bmm(weights.to(value.dtype), value, out_dtype=torch.float32)
    return torch.bmm(weights, value)
