"""The arithmetic of a decode step, compiled by Numba: few rows meet very many, each read once.

Numbers are stored as float32 or as the bits of bfloat16, which are widened in registers, so nothing is
upcast in memory. Four rows and more are summed in float32 vectors; fewer in float64, which costs
nothing where memory sets the pace.
"""

from math import exp
from typing import Any

import numpy as np
from numba import njit

from harness.attention.kernels.cpu.raw import narrowed, widened
from harness.attention.kernels.cpu.vectors import LANES, dots, mixing

_LIBERTIES = {"reassoc", "contract", "nsz"}  # sums in any order; infinities and NaN come through
plain: Any = njit(error_model="numpy", fastmath={"contract"})
fast: Any = njit(error_model="numpy", fastmath=_LIBERTIES)
_mix_16, _mix_64 = mixing(1), mixing(4)


@fast
def score(rows, stored, many, step, out):
    """`out[r, t]`: row r times the t-th stored row. Four by four in vectors; what is left over one by
    one, in the order of memory, which alone keeps the prefetchers going."""
    count, width = rows.shape
    blocks = count // 4 * 4 if width % LANES == 0 else 0
    fours = many // 4 * 4 if blocks else 0
    across = out.strides[0] // 4
    for t in range(0, fours, 4):
        for r in range(0, blocks, 4):
            dots(rows, r, width, stored, t * step, step, width, out, t, across)
    for r in range(count):
        for t in range(fours if r < blocks else 0, many):
            a = stored[t * step : t * step + width]
            total = 0.0
            for j in range(width):
                total += np.float64(widened(a[j])) * np.float64(rows[r, j])
            out[r, t] = total


@plain
def _ordered(word):
    """Bits of float32 that compare as integers, and back. A vector unit may take their maximum in any
    order; of floats it may not, because of NaN."""
    return word ^ ((word >> np.int32(31)) & np.int32(2**31 - 1))


@fast
def soften(scores, tokens, out):
    """Scores become exponentials below each row's maximum; that and their sum end the row of `out`."""
    depth = out.shape[1] - 2
    for r in range(len(out)):
        highest = np.int32(-(2**31))
        for t in range(tokens):
            highest = max(highest, _ordered(np.float32(scores[r, t]).view(np.int32)))
        top = np.int32(_ordered(highest)).view(np.float32)
        mass = np.float32(0)
        for t in range(tokens):
            weight = _exp(scores[r, t] - top)
            scores[r, t] = weight
            mass += weight
        out[r, depth], out[r, depth + 1] = top, mass


@fast
def mix(weights, stored, tokens, step, out):
    """`out[r]`: the stored rows, summed by weight. Four rows in vectors; what is left one by one."""
    count, depth = len(out), out.shape[1] - 2
    blocks = count // 4 * 4 if depth % LANES == 0 else 0
    wide = depth // (4 * LANES) * (4 * LANES)
    across = weights.strides[0] // 4
    for r in range(0, blocks, 4):
        for j in range(0, wide, 4 * LANES):
            _mix_64(weights, r, across, stored, j, step, tokens, out, j, depth + 2)
        for j in range(wide, depth, LANES):
            _mix_16(weights, r, across, stored, j, step, tokens, out, j, depth + 2)
    for r in range(blocks, count):
        out[r, :depth] = 0
        for t in range(tokens):
            weight = weights[r, t]
            a = stored[t * step : t * step + depth]
            for j in range(depth):
                out[r, j] += weight * widened(a[j])


@fast
def attend_finely(rows, key, key_step, value, value_step, scores, sums, out):
    """What `score`, `soften` and `mix` do, in float64. scores: room for one per token; sums: for a row."""
    width, depth, tokens = rows.shape[1], out.shape[1] - 2, len(scores)
    for r in range(len(out)):
        highest = -np.inf
        for t in range(tokens):
            a = key[t * key_step : t * key_step + width]
            total = 0.0
            for j in range(width):
                total += np.float64(widened(a[j])) * np.float64(rows[r, j])
            scores[t] = total
            highest = max(highest, total)
        top = np.float32(highest)
        shift = min(max(highest - np.float64(top), -80.0), 80.0)  # what rounding the maximum took
        mass = 0.0
        sums[:depth] = 0
        for t in range(tokens):
            weight = exp(scores[t] - highest + shift)
            mass += weight
            a = value[t * value_step : t * value_step + depth]
            for j in range(depth):
                sums[j] += weight * np.float64(widened(a[j]))
        for j in range(depth):
            out[r, j] = sums[j]
        out[r, depth], out[r, depth + 1] = top, mass


@plain
def normalize(row, weight, epsilon, out):
    """The Llama norm: `row` over its root mean square, times `weight`."""
    total = 0.0
    for x in row:
        total += np.float64(x) * np.float64(x)
    scale = 1.0 / np.sqrt(total / len(row) + epsilon)
    for j in range(len(row)):
        out[j] = np.float64(row[j]) * scale * np.float64(widened(weight[j]))


@plain
def turn(head, cos, sin, scale, out):
    """RoPE, half-split layout, then `scale`, as `out` is stored."""
    half = len(head) // 2
    for j in range(half):
        low, high = np.float64(head[j]), np.float64(head[j + half])
        a = (low * cos[j] - high * sin[j]) * scale
        b = (high * cos[j + half] + low * sin[j + half]) * scale
        out[j] = narrowed(np.float32(a), out[j])
        out[j + half] = narrowed(np.float32(b), out[j + half])


@plain
def gate(rows, other):
    """`rows` becomes `silu(rows) * other`."""
    for r in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            x = np.float64(rows[r, i])
            rows[r, i] = x / (1.0 + exp(-x)) * np.float64(other[r, i])


_SHIFT = np.float32(1.5 * 2**23)  # adding it rounds to whole numbers, found in the last bits
_LOG2_E = np.float32(np.log2(np.e))
_LN_2 = np.float32(np.floor(np.log(2) * 2**10) / 2**10)  # so short that multiples are exact
_LN_2_REST = np.float32(np.log(2) - float(_LN_2))
_T2, _T3, _T4, _T5, _T6, _T7 = (np.float32(1 / n) for n in (2, 6, 24, 120, 720, 5040))
_ONE, _LOWEST = np.float32(1), np.float32(-87)


@plain
def _exp(x):
    """`exp(x)` for x <= 0 within 1.5 units in the last place, 0 below -87: Taylor around the nearest
    multiple of log 2. The library's own is a call per number, which no vector unit can share."""
    shifted = x * _LOG2_E + _SHIFT
    whole = shifted - _SHIFT
    rest = (x - whole * _LN_2) - whole * _LN_2_REST
    total = (((((_T7 * rest + _T6) * rest + _T5) * rest + _T4) * rest + _T3) * rest + _T2) * rest
    total = (total + _ONE) * rest + _ONE
    power = np.int32((np.float32(shifted).view(np.int32) << np.int32(23)) + np.int32(127 << 23))
    scaled = total * np.int32(power).view(np.float32)
    return np.float32(0) if x < _LOWEST else scaled
