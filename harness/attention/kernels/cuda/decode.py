"""Attention of a decode step in half precision on CUDA, by kernels of our own: every part of the past is
read once where it lies, masked or not, by all branches and query heads that share it.

flash.py does the same with the library's kernel, whose parts are joined by a dozen small operations; a
step is short enough for those to cost more than the reading. Here a part is one kernel and joining all
parts one more. A row's share of a part is kept as its maximum score, its sum of exponentials and its
weighted values, all float32.
"""

import os
import warnings
from functools import cache
from typing import Any

import torch

from harness.attention.kernels.cuda.flash import Masked, serves

NEW = 8  # new tokens of a step; more are a prefill, which the library's kernel does well
MOST = 128  # splits of all parts together, which one program joins
LEAST = 256  # tokens of a split, at least
TOKENS = 2**13  # numbers of K that a program holds at a time, at most 64 tokens of them
_usable = True
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton on a CPU, for tests


def available(query: torch.Tensor) -> bool:
    """Whether the kernels are there, on the device of `query`."""
    return _usable and (query.is_cuda or INTERPRETED) and _program() is not None


@cache
def _program() -> Any:
    try:
        from harness.attention.kernels.cuda import program
    except ImportError:  # PyTorch for a GPU brings Triton, but need not
        return None
    return program


def attend(query: torch.Tensor, parts: list[Masked], scale: float) -> torch.Tensor | None:
    """Attention of `query` `[batch, heads, new, head_dim]` over all `parts` together, in its dtype; a row
    that sees no key gets zeros.

    A part is `(key, value, seen)` as in `flash.attend`, which serves where this gives None: for more
    new tokens than a decode step has, or what the kernels do not take. Mutates nothing.
    """
    new = query.shape[2]
    if new > NEW or len(parts) > MOST or query.stride(-1) != 1 or not available(query):
        return None
    if not serves(query, *(t for key, value, _ in parts for t in (key, value))):
        return None
    try:
        return _attended(query, parts, scale)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # no compiler, or too little shared memory, say
        _give_up(problem)
        return None


def _give_up(problem: Exception) -> None:
    """From here on the library's kernel serves."""
    global _usable
    _usable = False
    first = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    warnings.warn(
        f"the decode kernels could not be started ({first}). It goes on with the "
        "library's own, which are slower; Triton needs a C compiler (gcc).",
        RuntimeWarning,
        stacklevel=4,
    )


def _attended(query: torch.Tensor, parts: list[Masked], scale: float) -> torch.Tensor:
    program = _program()
    batch, heads, new, width = query.shape
    padded = max(1 << (width - 1).bit_length(), 16)
    counts = [min(_splits(query, key), MOST // len(parts)) for key, _, _ in parts]
    splits = sum(counts)
    sums = query.new_empty((batch, heads, new, splits, width), dtype=torch.float32)
    mass = query.new_empty((batch, heads, new, splits, 2), dtype=torch.float32)
    first = 0
    for (key, value, seen), count in zip(parts, counts, strict=True):
        base, kv_heads, tokens, _ = key.shape
        branches, group = batch // base, heads // kv_heads
        size = _rows(branches * group * new)
        chunk = -(-tokens // count)
        marks = (query, 0, 0, 0, 0) if seen is None else (seen, *_strides(seen))
        grid = (count, base * kv_heads, -(-branches * group * new // size))
        program.attend_part[grid](
            query, key, value, marks[0], sums, mass, scale,
            tokens, chunk, first, splits, branches, group, new, kv_heads,
            *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *marks[1:],
            WIDTH=width, PADDED=padded, ROWS=size, TOKENS=min(TOKENS // padded, 64), MASKED=seen is not None,
        )  # fmt: skip
        first += count
    out = query.new_empty(query.shape)
    joined = max(1 << (splits - 1).bit_length(), 2)
    program.join_parts[(batch * heads * new,)](
        sums, mass, out, splits, WIDTH=width, PADDED=padded, SPLITS=joined
    )
    return out


def _strides(seen: torch.Tensor) -> tuple[int, int, int, int]:
    """Of a mask whose only row, head or token stands for all."""
    row, head, new, token = (
        0 if n == 1 else s for n, s in zip(seen.shape, seen.stride(), strict=True)
    )
    return row, head, new, token


def _rows(rows: int) -> int:
    """Query rows that a program takes: 16 at least, for the matrix units."""
    return min(max(1 << (rows - 1).bit_length(), 16), 64)


def _splits(query: torch.Tensor, key: torch.Tensor) -> int:
    """Into how many runs of tokens a part is cut, so that every multiprocessor has two programs."""
    base, kv_heads, tokens, _ = key.shape
    rows = query.shape[0] * query.shape[1] * query.shape[2] // (base * kv_heads)
    programs = base * kv_heads * -(-rows // _rows(rows))
    wanted = -(-2 * _processors(query.device) // programs)
    return max(min(wanted, tokens // LEAST), 1)


@cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count
