"""Few rows times very many, at the speed of memory on a CPU: attention over a long past, and the
projections of a single token. The library's matrix kernels reach a third to a half of the bandwidth
there, because they are made for many rows that share what was read.

This side knows torch, compiled.py knows the machine.
"""

from itertools import product
from math import inf
from typing import Any

import numpy as np
import torch

from harness.cache.kernels import team

ROWS = 64  # beyond this many, reading is no longer the cost, and the library's kernels are better
SMALLEST = {torch.float32: 2**16, torch.bfloat16: 2**16}  # numbers; below, calling costs more
_KIND = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def serves(count: int, numbers: int, *stored: torch.Tensor) -> bool:
    """Whether the `stored` `[..., many, width]`, `numbers` in all, are worth streaming for `count`
    rows: of one dtype, float32 or bfloat16, each stored row contiguous, on a CPU."""
    return (
        count <= ROWS
        and numbers >= SMALLEST.get(stored[0].dtype, inf)
        and all(s.stride(-1) == 1 and s.dtype == stored[0].dtype for s in stored)
        and stored[0].device.type == "cpu"
        and team.available()
    )


def project(rows: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """`rows` `[rows, width]` times each of `weights` `[many, width]`, transposed: `[rows, many]`
    float32 each, products and sums in float32. Mutates nothing."""
    from harness.cache.kernels import compiled

    rows = rows.float().contiguous()
    count, width = rows.shape
    sizes = [weight.shape[0] for weight in weights]
    out = torch.empty(count * sum(sizes), dtype=torch.float32)
    lines, jobs, to = [], 0, out.data_ptr()
    for weight, many in zip(weights, sizes, strict=True):
        lines.append((jobs, many, 0, count, weight.data_ptr(), weight.stride(0), to, 0, 0, 0))
        jobs += -(-many // compiled.AT_ONCE)
        to += 4 * count * many
    head = (0, 0, jobs, count, count, width, 0, rows.data_ptr(), 0, 0)
    function = compiled.project(_KIND[weights[0].dtype])
    task = np.array([head, *lines, _end(jobs)])
    team.run(function.address, task, jobs, width * sum(sizes))
    return [made.view(count, -1) for made in out.split([count * many for many in sizes])]


def attend(query: torch.Tensor, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Attention of every scaled `query` `[batch, heads, new, head_dim]` over every key of all `parts`.

    A part is `(key, value)`, `[batch of the part, kv_heads, tokens, dim]`; branches fold: row `b` of
    the query reads row `b // branches` of a part, for any number of branches that divides the batch.
    Returns `[batch, heads, new, value_dim]` float32; products, exponentials and sums are float32.
    Mutates nothing.
    """
    from harness.cache.kernels import compiled

    batch, heads, new, width = query.shape
    kv_heads, depth = parts[0][0].shape[1], parts[0][1].shape[3]
    base = min(len(key) for key, _ in parts)
    folded = query.float().reshape(base, batch // base, kv_heads, -1, width)
    folded = folded.transpose(1, 2).contiguous()
    total, most = batch * heads * new, batch // base * heads // kv_heads * new
    lines: list[tuple[int, ...]] = []
    jobs = 0
    for key, value in parts:
        own, count = len(key) // base, total // (len(key) * kv_heads)
        _, _, tokens, _ = key.shape
        for row, (b, head, branch) in enumerate(product(range(base), range(kv_heads), range(own))):
            places = (_at(t, b * own + branch, head) for t in (key, value))
            start = (jobs, tokens, row * count, count)
            lines.append((*start, next(places), key.stride(2), next(places), value.stride(2), 0, 0))
            jobs += -(-tokens // compiled.PIECE)
    partial = torch.empty(jobs, most, depth + 2)
    result = torch.empty(base, kv_heads, batch // base, total // (batch * kv_heads), depth)
    places = (folded.data_ptr(), partial.data_ptr(), result.data_ptr())
    head = (0, 0, jobs, total, most, width, depth, *places)
    numbers = sum(key.numel() + value.numel() for key, value in parts)
    function = compiled.attend(_KIND[parts[0][0].dtype])
    team.run(function.address, np.array([head, *lines, _end(jobs)]), jobs, numbers)
    return result.transpose(1, 2).reshape(batch, heads, new, depth)


def _end(jobs: int) -> tuple[int, ...]:
    """The line after the last entry: no job is at or beyond it."""
    return (jobs, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def _at(stored: torch.Tensor, *place: int) -> int:
    steps: Any = zip(place, stored.stride(), strict=False)
    return stored.data_ptr() + sum(i * step for i, step in steps) * stored.element_size()
