"""The products of a decode step, compiled by Numba: few rows meet very many, each read once.

Imported only when first needed (stream.py). Compiling takes seconds, once; the code is then kept in
Numba's own cache beside this file. Sums are float32 whatever is stored: bfloat16 arrives as its bits
and is widened in registers, so nothing is upcast in memory.

Each function is called by several threads at once with the same task, int64 `[1 + entries, FIELDS]`:
sizes and addresses, first those of the whole, then one line per stored matrix. The threads draw jobs
from the task's counter until none is left. What is summed in which order depends on the shapes
alone, so any number of threads gives the same bits.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, float32, int64, njit, types, uint16, void
from numba.extending import intrinsic

from harness.cache.kernels.vectors import LANES, dots, mixing

PIECE = 512  # stored rows that one job of `attend` reads
AT_ONCE = 64  # stored rows that one job of `project` reads
FIELDS = 10
COUNTER, FINISHED, JOBS, ROWS, MOST, WIDTH, DEPTH, QUERIES, PARTIAL, RESULT = range(FIELDS)
FIRST, MANY, ROW, COUNT, KEY, KEY_STEP, VALUE, VALUE_STEP = range(8)  # of one stored matrix
TO = VALUE  # where `project` writes

_NUMBERS = {"float32": float32, "bfloat16": uint16}
_LIBERTIES = {"reassoc", "contract", "nsz"}  # sums in any order; infinities and NaN come through
_PLAIN = njit(error_model="numpy", fastmath={"contract"})
_FAST = njit(error_model="numpy", fastmath=_LIBERTIES)
_mix_16, _mix_64 = mixing(1), mixing(4)


@cache
def project(kind: str) -> Any:
    """Each entry's matrix `[MANY, WIDTH]`, of 'float32' or of 'bfloat16' bits, times the queries
    `[ROWS, WIDTH]`, into its own `[ROWS, MANY]`. FIRST is the number of its first job."""
    number = _NUMBERS[kind]

    def project(task):
        head = carray(task, FIELDS)
        rows = carray(_address(head[QUERIES]), (head[ROWS], head[WIDTH]), float32)
        job = _drawn(task)
        while job < head[JOBS]:
            entry = _entry(task, job)
            many, step = entry[MANY], entry[KEY_STEP]
            first = (job - entry[FIRST]) * AT_ONCE
            last = min(many, first + AT_ONCE)
            stored = carray(_address(entry[KEY]), many * step, number)[first * step :]
            out = carray(_address(entry[TO]), (head[ROWS], many), float32)[:, first:last]
            _score(rows, stored, last - first, step, out)
            job = _drawn(task)

    return _compiled(project)


@cache
def attend(kind: str) -> Any:
    """Each entry is one KV head of one part, keys `[MANY, WIDTH]` and values `[MANY, DEPTH]`, read by
    the COUNT queries from ROW on, of `[ROWS, WIDTH]` in all. Writes RESULT `[ROWS, DEPTH]`.

    A job is PIECE tokens of an entry; it leaves in PARTIAL `[JOBS, MOST, DEPTH + 2]` its COUNT rows of
    weighted values, maximum score and sum of exponentials. Whoever ends last merges them by row, in
    the order of the entries.
    """
    number = _NUMBERS[kind]

    def attend(task):
        head = carray(task, FIELDS)
        jobs, most, depth = head[JOBS], head[MOST], head[DEPTH]
        queries = carray(_address(head[QUERIES]), (head[ROWS], head[WIDTH]), float32)
        partial = carray(_address(head[PARTIAL]), (jobs, most, depth + 2), float32)
        result = carray(_address(head[RESULT]), (head[ROWS], depth), float32)
        scores = np.empty((most, PIECE), np.float32)
        job = _drawn(task)
        while job < jobs:
            entry = _entry(task, job)
            start = (job - entry[FIRST]) * PIECE
            tokens = min(entry[MANY] - start, PIECE)
            key = carray(_address(entry[KEY]), entry[MANY] * entry[KEY_STEP], number)
            value = carray(_address(entry[VALUE]), entry[MANY] * entry[VALUE_STEP], number)
            mine = queries[entry[ROW] : entry[ROW] + entry[COUNT]]
            out = partial[job, : entry[COUNT]]
            _score(mine, key[start * entry[KEY_STEP] :], tokens, entry[KEY_STEP], scores)
            _soften(scores, tokens, out)
            _mix(scores, value[start * entry[VALUE_STEP] :], tokens, entry[VALUE_STEP], out)
            if _counted(task) == jobs - 1:
                _merge(task, partial, result)
            job = _drawn(task)

    return _compiled(attend)


@_FAST
def _score(rows, stored, many, step, out):
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
            total = np.float32(0)
            for j in range(width):
                total += _widened(a[j]) * rows[r, j]
            out[r, t] = total


@_PLAIN
def _ordered(bits):
    """Bits of float32 that compare as integers, and back. A vector unit may take their maximum in any
    order; of floats it may not, because of NaN."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(2**31 - 1))


@_FAST
def _soften(scores, tokens, out):
    """Scores become exponentials below each row's maximum; that and their sum end the row of `out`."""
    depth = out.shape[1] - 2
    for r in range(len(out)):
        highest = np.int32(-(2**31))
        for t in range(tokens):
            highest = max(highest, _ordered(_bits(scores[r, t])))
        top = _number(_ordered(highest))
        mass = np.float32(0)
        for t in range(tokens):
            weight = _exp(scores[r, t] - top)
            scores[r, t] = weight
            mass += weight
        out[r, depth], out[r, depth + 1] = top, mass


@_FAST
def _mix(weights, stored, tokens, step, out):
    """`out[r]`: the stored rows, summed by weight. Four rows in vectors; what is left one by one."""
    count, depth = len(out), out.shape[1] - 2
    blocks = count // 4 * 4 if depth % LANES == 0 else 0
    wide = depth // (4 * LANES) * (4 * LANES)
    for r in range(0, blocks, 4):
        for j in range(0, wide, 4 * LANES):
            _mix_64(weights, r, PIECE, stored, j, step, tokens, out, j, depth + 2)
        for j in range(wide, depth, LANES):
            _mix_16(weights, r, PIECE, stored, j, step, tokens, out, j, depth + 2)
    for r in range(blocks, count):
        out[r, :depth] = 0
        for t in range(tokens):
            weight = weights[r, t]
            a = stored[t * step : t * step + depth]
            for j in range(depth):
                out[r, j] += weight * _widened(a[j])


@_PLAIN
def _merge(task, partial, result):
    """The attention of each row over the pieces that it read: values by mass under one maximum."""
    (rows, depth), jobs = result.shape, len(partial)
    tops, masses = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
    for job in range(jobs):
        entry = _entry(task, job)
        for i in range(entry[COUNT]):
            tops[entry[ROW] + i] = max(tops[entry[ROW] + i], partial[job, i, depth])
    result[:] = 0
    for job in range(jobs):
        entry = _entry(task, job)
        for i in range(entry[COUNT]):
            r = entry[ROW] + i
            share = _exp(partial[job, i, depth] - tops[r])
            masses[r] += share * partial[job, i, depth + 1]
            for j in range(depth):
                result[r, j] += share * partial[job, i, j]
    for r in range(rows):
        for j in range(depth):
            result[r, j] /= masses[r]


_SHIFT = np.float32(1.5 * 2**23)  # adding it rounds to whole numbers, found in the last bits
_LOG2_E = np.float32(np.log2(np.e))
_LN_2 = np.float32(np.floor(np.log(2) * 2**10) / 2**10)  # so short that multiples are exact
_LN_2_REST = np.float32(np.log(2) - float(_LN_2))
_T2, _T3, _T4, _T5, _T6, _T7 = (np.float32(1 / n) for n in (2, 6, 24, 120, 720, 5040))
_ONE, _LOWEST = np.float32(1), np.float32(-87)


@_PLAIN
def _exp(x):
    """`exp(x)` for x <= 0 within 1.5 units in the last place, 0 below -87: Taylor around the nearest
    multiple of log 2. The library's own is a call per number, which no vector unit can share."""
    shifted = x * _LOG2_E + _SHIFT
    whole = shifted - _SHIFT
    rest = (x - whole * _LN_2) - whole * _LN_2_REST
    total = (((((_T7 * rest + _T6) * rest + _T5) * rest + _T4) * rest + _T3) * rest + _T2) * rest
    total = (total + _ONE) * rest + _ONE
    scaled = total * _number((_bits(shifted) << np.int32(23)) + np.int32(127 << 23))
    return np.float32(0) if x < _LOWEST else scaled


@_PLAIN
def _entry(task, job):
    """The last entry that begins no later than `job`."""
    line = 1
    while carray(task, FIELDS * (line + 2))[FIELDS * (line + 1) + FIRST] <= job:
        line += 1
    return carray(task, FIELDS * (line + 1))[FIELDS * line :]


def _raised(place: int) -> Callable[..., Any]:
    """Add one to a number of the task that all threads share; gives what it was."""

    @intrinsic
    def raised(_: object, task: types.Type) -> object:
        def generate(context, builder, signature, arguments):
            counter = builder.gep(arguments[0], [ir.IntType(64)(place)])
            return builder.atomic_rmw("add", counter, ir.IntType(64)(1), "seq_cst")

        return int64(task), generate

    return raised


_drawn, _counted = _raised(COUNTER), _raised(FINISHED)


@intrinsic
def _address(_: object, number: types.Type) -> object:
    """An int64 as the address that it is."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(int64), generate


@intrinsic
def _widened(_: object, number: types.Type) -> object:
    """A stored number as float32: itself, or the bfloat16 whose bits it is."""

    def generate(context, builder, signature, arguments):
        if number == float32:
            return arguments[0]
        bits = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(bits, ir.IntType(32)(16)), ir.FloatType())

    return float32(number), generate


def _reread(given: types.Type, wanted: types.Type, made: ir.Type) -> Callable[..., Any]:
    @intrinsic
    def reread(_: object, number: types.Type) -> object:
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], made)

        return wanted(given), generate

    return reread


_bits = _reread(float32, types.int32, ir.IntType(32))
_number = _reread(types.int32, float32, ir.FloatType())


def _compiled(function: Callable[..., None]) -> Any:
    signature = void(types.CPointer(int64))
    try:
        return cfunc(signature, cache=True, error_model="numpy")(function)
    except RuntimeError:  # nowhere to write the cache
        return cfunc(signature, error_model="numpy")(function)
