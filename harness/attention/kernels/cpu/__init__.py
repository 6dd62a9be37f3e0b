"""The two matrix products of attention on a CPU, at the speed of memory and without copying K or V.

A few query rows over a long past are streamed (stream.py). What is left is more rows, where the
library's kernels are good, but for one thing: bfloat16 products accumulate in float32 and are handed
back rounded to bfloat16, an error of up to 0.03 in a score of 10. The rounding error is recovered by
a second product, `q @ k.T - rounded`, which the same kernel computes before it rounds: together they
hold 16 bits, and K is not upcast.
"""

from functools import cache

import torch

from harness.attention.kernels.cpu import stream

_LONG = 512  # tokens from which upcasting K or V costs more than a second product


def attend(
    query: torch.Tensor, parts: list[tuple[torch.Tensor, torch.Tensor]], scale: float
) -> torch.Tensor | None:
    """Attention of `query` `[batch, heads, new, head_dim]` to all of every `(key, value)` part (see
    `stream.attend`) in one pass, or None where two separate products are the better way."""
    batch, heads, new, _ = query.shape
    base = min([key.shape[0] for key, _ in parts])
    stored = [tensor for part in parts for tensor in part]
    rows = batch // base * heads // stored[0].shape[1] * new
    if not stream.serves(rows, sum([s.numel() for s in stored]), *stored):
        return None
    return stream.attend(query.float() * scale, parts)


def scores(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`query` `[n, rows, head_dim]` times `key` `[n, tokens, head_dim]`: `[n, rows, tokens]`, at
    least float32 and accurate to that dtype (16 bits from bfloat16). May be a transposed view."""
    if key.dtype == torch.bfloat16 and key.shape[1] >= _LONG and _bfloat16_residual():
        turned = key.transpose(1, 2)
        rounded = torch.bmm(query, turned)
        rest = torch.baddbmm(rounded, query, turned, beta=-1)
        return rounded.float().add_(rest)
    if key.dtype in (torch.bfloat16, torch.float16):
        return torch.bmm(query.float(), key.float().transpose(1, 2))
    key = key.to(query.dtype)
    if query.shape[1] > 64:
        return torch.bmm(query, key.transpose(1, 2))
    return torch.bmm(key, query.transpose(1, 2)).transpose(1, 2)


def values(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`weights` `[n, rows, tokens]` (at least float32) times `value` `[n, tokens, head_dim]`:
    `[n, rows, head_dim]`, at least float32. bfloat16 values meet weights rounded to bfloat16, as in
    every fused kernel."""
    if value.dtype == torch.bfloat16 and value.shape[1] >= _LONG and _bfloat16_residual():
        return torch.bmm(weights.to(torch.bfloat16), value).float()
    if value.dtype in (torch.bfloat16, torch.float16):
        return torch.bmm(weights, value.float())
    return torch.bmm(weights, value.to(weights.dtype))


@cache
def _bfloat16_residual() -> bool:
    """Whether this CPU multiplies bfloat16 natively and subtracts before it rounds (a trial tells)."""
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
    except (AttributeError, RuntimeError):
        return False
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 64, generator=draw).bfloat16()
    turned = torch.randn(1, 64, 512, generator=draw).bfloat16()
    rounded = torch.bmm(query, turned)
    both = rounded.double() + torch.baddbmm(rounded, query, turned, beta=-1).double()
    exact = torch.bmm(query.double(), turned.double())
    return float((both - exact).abs().max()) < float(exact.abs().max()) * 2.0**-15
