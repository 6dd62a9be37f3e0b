"""The two matrix products of attention on a CPU, at the speed of memory and without copying K or V.

In decoding, a few query rows meet very many keys, and each key is read once. Plain `q @ k.T` leaves
more than half of the memory bandwidth unused there, so:

- float32 scores are computed as `k @ q.T` (the library packs the short side instead of the long one),
  float32 values through oneDNN, whose kernel streams V where MKL's repacks it.
- bfloat16 products accumulate in float32 but are handed back rounded to bfloat16, an error of up to
  0.03 in a score of 10. The rounding error is recovered by a second product, `q @ k.T - rounded`,
  which the same kernel computes before it rounds: together they hold 16 bits. K is never upcast.
"""

from functools import cache

import torch

_STREAM = 2048  # tokens from which the bandwidth of V matters more than a call per head


def scores(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`query` `[n, rows, head_dim]` times `key` `[n, tokens, head_dim]`: `[n, rows, tokens]`, at
    least float32 and accurate to that dtype (16 bits from bfloat16). May be a transposed view."""
    if key.dtype == torch.bfloat16 and key.shape[1] >= _STREAM // 4 and _bfloat16_residual():
        turned = key.transpose(1, 2)
        rounded = torch.bmm(query, turned)
        rest = torch.baddbmm(rounded, query, turned, beta=-1)
        return rounded.float().add_(rest)
    if key.dtype in (torch.bfloat16, torch.float16):
        return torch.bmm(query.float(), key.float().transpose(1, 2))
    if query.shape[1] > 64:
        return torch.bmm(query, key.transpose(1, 2))
    return torch.bmm(key, query.transpose(1, 2)).transpose(1, 2)


def values(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`weights` `[n, rows, tokens]` (at least float32) times `value` `[n, tokens, head_dim]`:
    `[n, rows, head_dim]`, at least float32. bfloat16 values meet weights rounded to bfloat16, as in
    every fused kernel."""
    if value.dtype == torch.bfloat16 and value.shape[1] >= _STREAM // 4 and _bfloat16_residual():
        return torch.bmm(weights.to(torch.bfloat16), value).float()
    if value.dtype in (torch.bfloat16, torch.float16):
        return torch.bmm(weights, value.float())
    if value.dtype == torch.float32 and value.shape[1] >= _STREAM and _onednn():
        out = weights.new_empty(*weights.shape[:2], value.shape[2])
        for i in range(len(value)):
            out[i] = _linear(weights[i], value[i].t())
        return out
    return torch.bmm(weights, value)


def _linear(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")


@cache
def _onednn() -> bool:
    """Whether oneDNN's linear kernel is there and multiplies a transposed weight correctly."""
    rows, weight = torch.ones(2, 64), torch.arange(64.0 * 3).view(64, 3)
    try:
        return torch.equal(_linear(rows, weight.t()), rows @ weight)
    except (AttributeError, RuntimeError):
        return False


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
