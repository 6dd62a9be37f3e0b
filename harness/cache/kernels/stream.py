"""Few rows times very many, at the speed of memory on a CPU: attention over a long past, and the
projections of a single token. The library's matrix kernels reach a third to a half of the bandwidth
there, because they are made for many rows that share what was read.

This side knows torch, compiled.py knows the machine.
"""

from math import inf
from threading import Lock, local

import torch

ROWS = 64  # beyond this many, reading is no longer the cost, and the library's kernels are better
SMALLEST = {torch.float32: 2**17, torch.bfloat16: 2**16}  # numbers; below, calling costs more
_LOCK = Lock()  # not every threading layer of Numba may be entered twice at once
_SET = local()


def serves(rows: torch.Tensor, stored: torch.Tensor) -> bool:
    """Whether `stored` `[n, many, width]` (or `[many, width]`) is worth streaming for `rows`
    `[..., rows, x]`: float32 or bfloat16, large, each stored row contiguous."""
    return (
        rows.shape[-2] <= ROWS
        and stored.numel() >= SMALLEST.get(stored.dtype, inf)
        and stored.stride(-1) == 1
        and stored.device.type == "cpu"
    )


def scores(rows: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """`rows` `[n, rows, width]` times `stored` `[n, many, width]`, transposed: `[n, rows, many]`
    float32, products and sums in float32. Mutates nothing."""
    out = torch.empty(*rows.shape[:2], stored.shape[1], dtype=torch.float32)
    rows = rows.float().contiguous()
    _run(0, rows, stored, out)
    return out


def values(weights: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """`weights` `[n, rows, many]` times `stored` `[n, many, width]`: `[n, rows, width]` float32,
    products and sums in float32. Mutates nothing."""
    from harness.cache.kernels.compiled import PIECE

    pieces = -(-stored.shape[1] // PIECE)
    out = torch.empty(pieces, *weights.shape[:2], stored.shape[2], dtype=torch.float32)
    _run(1, weights.float(), stored, out)
    return out[0] if pieces == 1 else out.sum(0)


def _run(which: int, rows: torch.Tensor, stored: torch.Tensor, out: torch.Tensor) -> None:
    import numba

    from harness.cache.kernels.compiled import kernels

    _, many, width = stored.shape
    span = (
        sum((size - 1) * step for size, step in zip(stored.shape, stored.stride(), strict=True)) + 1
    )
    flat = stored.detach().as_strided((span,), (1,))
    bfloat16 = stored.dtype == torch.bfloat16
    kernel = kernels("bfloat16" if bfloat16 else "float32")[which]
    memory = (flat.view(torch.uint16) if bfloat16 else flat).numpy()
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    with _LOCK:
        if getattr(_SET, "threads", None) != threads:
            numba.set_num_threads(threads)  # of the calling thread
            _SET.threads = threads
        kernel(
            rows.detach().numpy(),
            memory,
            many,
            width,
            stored.stride(0),
            stored.stride(1),
            out.numpy(),
        )
