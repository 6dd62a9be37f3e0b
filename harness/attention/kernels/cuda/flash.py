"""Attention of half-precision parts by the library's flash kernel, which also gives each row's
log-sum-exp, so that parts attended apart can be brought together again.

A part once attended is like one more key: its score is its log-sum-exp, its value is its output. So
one softmax over those and over the scores of what is masked (the short, padded tail of a fixed-shape
step) gives the attention over everything, in few operations.

The log-sum-exp is float32, which attention.py avoids for float32: of 50 it has no digits left below
4e-6. In half precision that is far below what rounding the outputs costs anyway, 2e-3 in bfloat16 and
5e-4 in float16; it would reach that only at scores in the thousands.

`flash` takes the CPU's kernel for CPU tensors: the way everything here is tested without a GPU. On a
CPU split attention uses cpu.py instead. A decode step on a GPU goes by decode.py, where Triton is there.
"""

from functools import cache
from math import inf

import torch

from harness.attention.kernels import cuda, products
from harness.attention.parts import by_head

MOST = 2**23  # scores of masked parts, as float32; beyond, the general way attends block by block

Masked = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def available(query: torch.Tensor) -> bool:
    """Whether `query` is half precision on a CUDA device that has the kernel (compute capability 8.0
    or newer)."""
    return query.is_cuda and query.dtype in cuda.HALF and _on(query.device)


@cache
def _on(device: torch.device) -> bool:
    if torch.version.cuda is None or not torch.backends.cuda.is_flash_attention_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def serves(query: torch.Tensor, *stored: torch.Tensor) -> bool:
    """Whether the kernel takes these: float16 or bfloat16, keys and values of one head_dim, a
    multiple of 8 and at most 256, every row of it aligned to 16 bytes."""
    width = query.shape[-1]
    return (
        query.dtype in cuda.HALF
        and width <= 256
        and width % 8 == 0
        and all(
            t.dtype == query.dtype
            and t.shape[-1] == width
            and t.stride(-1) == 1
            and t.data_ptr() % 16 == 0
            and all(step % 8 == 0 for step in t.stride()[:-1])
            for t in stored
        )
    )


def attend(query: torch.Tensor, parts: list[Masked], scale: float) -> torch.Tensor | None:
    """Attention of `query` `[batch, heads, new, head_dim]` over all `parts` together, in its dtype.

    A part is `(key, value, seen)`: key and value `[batch of the part, kv_heads, tokens, head_dim]`,
    folded as in `split_attention`; seen `[batch, 1 or kv_heads, new, tokens]` bool, or None where every query sees
    every key. None when the kernel does not serve, when nothing is unmasked, or when too much is
    masked. Mutates nothing.
    """
    if not serves(query, *(t for key, value, _ in parts for t in (key, value))):
        return None
    masked = [part for part in parts if part[2] is not None]
    rows = query.shape[0] * query.shape[1] * query.shape[2]
    if len(masked) == len(parts) or rows * sum(key.shape[2] for key, _, _ in masked) > MOST:
        return None
    if not all(products.one_by_one(t) for key, value, _ in masked for t in (key, value)):
        return None
    columns, outs = [], []
    for key, value, seen in parts:
        folded = _folded(query, key)
        if seen is None:
            out, mass = flash(folded, key, value, scale)
            columns.append(_unfolded(mass[..., None], query))
            outs.append(_unfolded(out, query))
        else:
            scores = products.scores(folded.flatten(0, 1), key.flatten(0, 1))
            scores = _unfolded(scores.unflatten(0, key.shape[:2]), query) * scale
            columns.append(scores.masked_fill_(~by_head(seen, query.shape[1]), -inf))
            outs.append(value)
    weights = torch.softmax(torch.cat(columns, -1), -1).split([c.shape[-1] for c in columns], -1)
    shares = []
    for weight, what, (key, _, seen) in zip(weights, outs, parts, strict=True):
        if seen is None:
            shares.append(what * weight)
        else:
            mixed = products.values(_folded(weight, key).flatten(0, 1), what.flatten(0, 1))
            shares.append(_unfolded(mixed.unflatten(0, key.shape[:2]), query))
    total = sum(shares[1:], shares[0])
    return total.to(query.dtype)


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unmasked attention `[batch, heads, rows, head_dim]` and its log-sum-exp `[batch, heads, rows]`
    float32. query: `[batch, heads, rows, head_dim]`; key, value: as many heads."""
    if query.is_cuda:
        out, mass, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, scale=scale
        )
    else:
        out, mass = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, scale=scale
        )
    return out, mass[..., : query.shape[2]]


def _folded(rows: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """`[batch, heads, new, x]` as `[batch of the part, kv_heads, branches * group * new, x]`."""
    base, kv_heads = key.shape[:2]
    split = rows.reshape(base, len(rows) // base, kv_heads, -1, rows.shape[-1])
    return split.transpose(1, 2).flatten(2, 3)


def _unfolded(rows: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """`_folded` undone, to the batch, heads and new tokens of `query`."""
    branches = len(query) // len(rows)
    return rows.unflatten(2, (branches, -1)).transpose(1, 2).reshape(*query.shape[:3], -1)
