"""Few rows times very many, at the speed of memory on a CPU: attention over a long past, and the
projections of a single token. The library's matrix kernels reach a third to a half of the bandwidth
there, because they are made for many rows that share what was read.

Longer programs of the same operations are in program.py.
"""

import torch

from harness.attention.kernels.cpu.layout import SET
from harness.attention.kernels.cpu.program import Program, Ready, available, floats, readable

ROWS = 64  # beyond this many, reading is no longer the cost, and the library's kernels are better
SMALLEST = 2**16  # numbers; below, calling costs more


def serves(count: int, numbers: int, *stored: torch.Tensor) -> bool:
    """Whether the `stored` `[..., many, width]`, `numbers` in all, are worth streaming for `count`
    rows, and can be."""
    worth = count <= ROWS and numbers >= SMALLEST
    return worth and readable(stored[0].dtype, *stored) and available()


def project(rows: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """`rows` `[rows, width]` times each of `weights` `[many, width]`, transposed: `[rows, many]`
    float32 each, sums in float32 or better. Mutates nothing."""
    out = [floats(len(rows), weight.shape[0]) for weight in weights]
    ready = projection(len(rows), [(weight, None) for weight in weights])
    ready.project(rows.float().contiguous(), out)
    return out


def projection(rows: int, layers: list[tuple[torch.Tensor, torch.Tensor | None]]) -> Ready:
    """`rows` rows times each weight, transposed, plus its bias, to be run with `Ready.project`."""
    program = Program(layers[0][0].dtype)
    inputs = floats(rows, layers[0][0].shape[1])
    made = [floats(rows, weight.shape[0]) for weight, _ in layers]
    program.project(inputs, *((o, SET, w, b, None) for o, (w, b) in zip(made, layers, strict=True)))
    return program.ready()


def attend(query: torch.Tensor, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Attention of every scaled `query` `[batch, heads, new, head_dim]` over every key of all `parts`.

    A part is `(key, value)`, `[batch of the part, kv_heads, tokens, dim]`; branches fold: row `b` of
    the query reads row `b // branches` of a part, for any number of branches that divides the batch.
    Returns `[batch, heads, new, value_dim]` float32; sums are float32 or better. Mutates nothing.
    """
    batch, heads, new, width = query.shape
    kv_heads, depth = parts[0][0].shape[1], parts[0][1].shape[3]
    base = min([key.shape[0] for key, _ in parts])
    folded = query.float().reshape(base, batch // base, kv_heads, -1, width)
    out = floats(batch, heads, new, depth)
    program = Program(parts[0][0].dtype)
    program.attend(folded.transpose(1, 2).contiguous(), parts, out)
    program.run()
    return out
