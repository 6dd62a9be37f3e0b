"""The two products of a decode step, compiled by Numba: few rows meet very many, each read once.

Imported only when first needed (stream.py). Compiling takes seconds, once; the code is then kept in
Numba's own cache beside this file. Sums are float32 whatever is stored: bfloat16 arrives as its bits
and is widened in registers, so nothing is upcast in memory. Which numbers are summed in which order
depends on the shapes alone: any number of threads gives the same bits.

What is stored comes as the memory it spans, one-dimensional, with the step from one matrix and from
one of its rows to the next, so that a slice of a longer buffer needs no copy and no other code.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from llvmlite import ir
from numba import float32, int64, njit, prange, types, uint16, void
from numba.extending import intrinsic

PIECE = 2048  # stored rows whose values are summed on their own
_AT_ONCE = 64  # stored rows per piece of work where nothing is summed over them


@cache
def kernels(kind: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """`scores` and `values` for what is stored as 'float32' or 'bfloat16' (uint16 bits)."""
    flat = {"float32": float32, "bfloat16": uint16}[kind][::1]
    dense, any_layout = float32[:, :, ::1], float32[:, :, :]
    sizes = (int64, int64, int64, int64)
    return (
        _compiled(scores, void(dense, flat, *sizes, any_layout)),
        _compiled(values, void(any_layout, flat, *sizes, float32[:, :, :, ::1])),
    )


def scores(rows, stored, many, width, matrix_step, row_step, out):
    """`rows` `[n, rows, width]` times n matrices `[many, width]`, into `out` `[n, rows, many]`."""
    pieces = (many + _AT_ONCE - 1) // _AT_ONCE
    for job in prange(rows.shape[0] * pieces):
        n, first = job // pieces, (job % pieces) * _AT_ONCE
        last = min(many, first + _AT_ONCE)
        twos, pairs = first + (last - first) // 2 * 2, rows.shape[1] // 2 * 2
        for t in range(first, twos, 2):  # two by two: each load is used twice
            here = n * matrix_step + t * row_step
            a, b = stored[here : here + width], stored[here + row_step : here + row_step + width]
            for r in range(0, pairs, 2):
                w = x = y = z = np.float32(0)
                for j in range(width):
                    e, f, g, h = _widened(a[j]), _widened(b[j]), rows[n, r, j], rows[n, r + 1, j]
                    w += e * g
                    x += f * g
                    y += e * h
                    z += f * h
                out[n, r, t], out[n, r, t + 1] = w, x
                out[n, r + 1, t], out[n, r + 1, t + 1] = y, z
            for r in range(pairs, rows.shape[1]):
                w = x = np.float32(0)
                for j in range(width):
                    w += _widened(a[j]) * rows[n, r, j]
                    x += _widened(b[j]) * rows[n, r, j]
                out[n, r, t], out[n, r, t + 1] = w, x
        for t in range(twos, last):
            here = n * matrix_step + t * row_step
            for r in range(rows.shape[1]):
                w = np.float32(0)
                for j in range(width):
                    w += _widened(stored[here + j]) * rows[n, r, j]
                out[n, r, t] = w


def values(weights, stored, many, width, matrix_step, row_step, out):
    """`weights` `[n, rows, many]` times n matrices `[many, width]`: one sum for each PIECE of stored
    rows, into `out` `[pieces, n, rows, width]`."""
    pieces, count = out.shape[0], weights.shape[1]
    for job in prange(weights.shape[0] * pieces):
        n, piece = job // pieces, job % pieces
        sums = np.zeros((count, width), np.float32)
        first, last = piece * PIECE, min(many, (piece + 1) * PIECE)
        fours = first + (last - first) // 4 * 4
        pairs = count // 2 * 2
        for t in range(
            first, fours, 4
        ):  # four by two: each load is used twice, each sum kept for four
            here = n * matrix_step + t * row_step
            a = stored[here : here + width]
            b = stored[here + row_step : here + row_step + width]
            c = stored[here + 2 * row_step : here + 2 * row_step + width]
            d = stored[here + 3 * row_step : here + 3 * row_step + width]
            for r in range(0, pairs, 2):
                w, x = weights[n, r, t], weights[n, r, t + 1]
                y, z = weights[n, r, t + 2], weights[n, r, t + 3]
                w2, x2 = weights[n, r + 1, t], weights[n, r + 1, t + 1]
                y2, z2 = weights[n, r + 1, t + 2], weights[n, r + 1, t + 3]
                for j in range(width):
                    e, f, g, h = _widened(a[j]), _widened(b[j]), _widened(c[j]), _widened(d[j])
                    sums[r, j] += w * e + x * f + y * g + z * h
                    sums[r + 1, j] += w2 * e + x2 * f + y2 * g + z2 * h
            for r in range(pairs, count):
                w, x = weights[n, r, t], weights[n, r, t + 1]
                y, z = weights[n, r, t + 2], weights[n, r, t + 3]
                for j in range(width):
                    e, f, g, h = _widened(a[j]), _widened(b[j]), _widened(c[j]), _widened(d[j])
                    sums[r, j] += w * e + x * f + y * g + z * h
        for t in range(fours, last):
            here = n * matrix_step + t * row_step
            for r in range(count):
                for j in range(width):
                    sums[r, j] += weights[n, r, t] * _widened(stored[here + j])
        out[piece, n] = sums


@intrinsic
def _widened(_: object, number: types.Type) -> object:
    """A stored number as float32: itself, or the bfloat16 whose bits it is."""

    def generate(context, builder, signature, arguments):
        if number == types.float32:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(number), generate


def _compiled(function: Callable[..., None], signature: object) -> Callable[..., None]:
    options = {"parallel": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
    try:
        return njit(signature, cache=True, **options)(function)
    except RuntimeError:  # nowhere to write the cache
        return njit(signature, **options)(function)
