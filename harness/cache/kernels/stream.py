"""Few rows times very many, at the speed of memory on a CPU: attention over a long past, and the
projections of a single token. The library's matrix kernels reach a third to a half of the bandwidth
there, because they are made for many rows that share what was read.

This side knows torch, compiled.py knows the machine.
"""

from itertools import product
from math import inf

import torch

from harness.cache.kernels import team

ROWS = 64  # beyond this many, reading is no longer the cost, and the library's kernels are better
SMALLEST = {torch.float32: 2**16, torch.bfloat16: 2**16}  # numbers; below, calling costs more
_KIND = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_END = (0,) * 9  # the rest of the line after the last entry, which no job is at or beyond


def serves(count: int, numbers: int, *stored: torch.Tensor) -> bool:
    """Whether the `stored` `[..., many, width]`, `numbers` in all, are worth streaming for `count`
    rows: of one dtype, float32 or bfloat16, each stored row contiguous, on a CPU."""
    dtype = stored[0].dtype
    if count > ROWS or numbers < SMALLEST.get(dtype, inf) or stored[0].device.type != "cpu":
        return False
    fitting = all(s.stride(-1) == 1 and s.dtype == dtype for s in stored)
    return fitting and team.available()


def project(rows: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """`rows` `[rows, width]` times each of `weights` `[many, width]`, transposed: `[rows, many]`
    float32 each, products and sums in float32. Mutates nothing."""
    from harness.cache.kernels import compiled

    rows = rows.float().contiguous()
    count, width = rows.shape
    sizes = [weight.shape[0] for weight in weights]
    out = torch.empty(count * sum(sizes))
    lines, jobs, to = [], 0, out.data_ptr()
    for weight, many in zip(weights, sizes, strict=True):
        lines += (jobs, many, 0, count, weight.data_ptr(), weight.stride(0), to, 0, 0, 0)
        jobs += -(-many // compiled.AT_ONCE)
        to += 4 * count * many
    head = (0, 0, jobs, count, count, width, 0, rows.data_ptr(), 0, 0)
    function = compiled.project(_KIND[weights[0].dtype]).address
    team.run(function, [*head, *lines, jobs, *_END], jobs, width * sum(sizes))
    if len(sizes) == 1:
        return [out.view(count, -1)]
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
    base = min([key.shape[0] for key, _ in parts])
    folded = query.float().reshape(base, batch // base, kv_heads, -1, width)
    folded = folded.transpose(1, 2).contiguous()
    total = batch * heads * new
    most = total // (base * kv_heads)
    lines: list[int] = []
    jobs = numbers = 0
    for key, value in parts:
        own, count, tokens = key.shape[0] // base, total // (key.shape[0] * kv_heads), key.shape[2]
        (row, head, step, _), (row_v, head_v, step_v, _) = key.stride(), value.stride()
        at, at_v, size = key.data_ptr(), value.data_ptr(), key.element_size()
        places = product(range(base), range(kv_heads), range(own))
        for first, (b, h, branch) in enumerate(places):
            i = b * own + branch
            keys, values = (i * row + h * head) * size, (i * row_v + h * head_v) * size
            lines += (
                jobs,
                tokens,
                first * count,
                count,
                at + keys,
                step,
                at_v + values,
                step_v,
                0,
                0,
            )
            jobs += -(-tokens // compiled.PIECE)
        numbers += key.numel() + value.numel()
    partial = torch.empty(jobs, most, depth + 2)
    result = torch.empty(base, kv_heads, batch // base, total // (batch * kv_heads), depth)
    addresses = (folded.data_ptr(), partial.data_ptr(), result.data_ptr())
    whole = (0, 0, jobs, total, most, width, depth, *addresses)
    function = compiled.attend(_KIND[parts[0][0].dtype]).address
    team.run(function, [*whole, *lines, jobs, *_END], jobs, numbers)
    return result.transpose(1, 2).reshape(batch, heads, new, depth)
