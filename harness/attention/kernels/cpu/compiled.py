"""Runs a program (program.py) on every thread that calls it. The threads draw a phase's jobs from a
counter until none is left; who finds none waits until the last is done, and goes on to the next phase.
What is summed in which order depends on the shapes alone, so any number of threads gives the same bits.

The task is int64 `[1 + phases + entries, FIELDS]`. Imported only when first needed: compiling takes
up to a minute, once, in a process of its own; the code is then kept in Numba's own cache beside this file.
"""

import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, float32, float64, int64, types, uint16, void
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc

from harness.attention.kernels.cpu import layout as p
from harness.attention.kernels.cpu.arithmetic import (
    attend_finely,
    gate,
    mix,
    normalize,
    plain,
    score,
    soften,
    turn,
)
from harness.attention.kernels.cpu.raw import (
    address,
    narrowed,
    raised,
    seen,
    stand_aside,
    widened,
)

_NUMBERS = {"float32": float32, "bfloat16": uint16}
_PATIENCE = 2000  # looks at a counter before the core is offered to somebody else


class Filled(FunctionCache):
    """Numba's cache of one function. Where it lacks the code, another process compiles it.

    Where a function is compiled, each helper exists twice: optimized by itself, and again inside its
    caller. The loader keeps whichever comes first, and sums that may be reordered get other last bits
    than from the stored code, which has the second kind alone. So all read what is stored.
    """

    kind = ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if (found := super().load_overload(sig, target_context)) is not None:
            return found
        paths = [str(Path(__file__).resolve().parents[4]), os.environ.get("PYTHONPATH")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        code = f"from {__name__} import FunctionCache, runner; runner({self.kind!r}, FunctionCache)"
        with suppress(OSError):  # no process can be started: it is compiled here
            subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        return super().load_overload(sig, target_context)


@cache
def runner(kind: str, stored: type[FunctionCache] = Filled) -> Any:
    """The C function `void (int64_t *)` for programs whose weights and K/V are of `kind`: 'float32' or
    'bfloat16' (as bits). stored: the cache that it is read from and written to."""
    number, made_from = _NUMBERS[kind], _sources()

    def run(task):
        _ = made_from  # what Numba's cache tells one version of this code from another by
        head = carray(task, p.FIELDS)
        made = np.empty((2, head[p.MOST_ROWS], p.AT_ONCE), np.float32)
        scores = np.empty((head[p.MOST_QUERIES], p.PIECE), np.float32)
        finely = np.empty(p.PIECE + head[p.MOST_DEPTH])
        for phase in range(head[p.PHASES]):
            line, counter = _line(task, 1 + phase), (1 + phase) * p.FIELDS
            job = raised(task, counter + p.COUNTER)
            while job < line[p.JOBS]:
                entry = _entry(task, line, job)
                ordinal = job - entry[p.FIRST]
                if entry[p.KIND] == p.PROJECT:
                    _project(entry, ordinal, made, number)
                elif entry[p.KIND] == p.ATTEND:
                    _attend(entry, ordinal, job, scores, finely, number)
                elif entry[p.KIND] == p.MERGE:
                    _merge(task, entry, ordinal, finely)
                elif entry[p.KIND] == p.NORM:
                    _norm(entry, ordinal, number)
                else:
                    _prepare(entry, ordinal, number)
                raised(task, counter + p.FINISHED)
                job = raised(task, counter + p.COUNTER)
            looks = 0
            while seen(task, counter + p.FINISHED) < line[p.JOBS]:
                looks += 1
                if looks % _PATIENCE == 0:
                    stand_aside()

    made: Any = CFunc(run, ((types.CPointer(int64),), void), {}, {"error_model": "numpy"})
    with suppress(RuntimeError):  # nowhere to write the cache
        made._cache = stored(run)
        made._cache.kind = kind
    made.compile()
    return made


def _sources() -> str:
    """Digest of all that is compiled. Numba itself looks at this one file only."""
    folder = Path(__file__).parent
    files = [
        folder / f"{name}.py" for name in ("arithmetic", "compiled", "layout", "raw", "vectors")
    ]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@plain
def _line(task, index):
    return carray(task, p.FIELDS * (index + 1))[p.FIELDS * index :]


@plain
def _entry(task, phase, job):
    """The last entry of `phase` that begins no later than `job`."""
    at = 1 + carray(task, p.FIELDS)[p.PHASES] + phase[p.ENTRY]
    last = at + phase[p.ENTRIES] - 1
    while at < last and _line(task, at + 1)[p.FIRST] <= job:
        at += 1
    return _line(task, at)


@plain
def _numbers(entry, field, count, number):
    return carray(address(entry[field]), count, number)


@plain
def _double(entry, field):
    return np.int64(entry[field]).view(np.float64)


@plain
def _rows(entry, field, rows, width, number):
    return carray(address(entry[field]), (rows, width), number)


@plain
def _project(entry, ordinal, made, number):
    """AT_ONCE rows of a stored matrix `[MANY, WIDTH]` times all of GIVEN `[ROWS, WIDTH]`."""
    rows, many, step = entry[p.ROWS], entry[p.MANY], entry[p.KEY_STEP]
    first = ordinal * p.AT_ONCE
    count = min(many - first, p.AT_ONCE)
    inputs = _rows(entry, p.GIVEN, rows, entry[p.WIDTH], float32)
    score(inputs, _numbers(entry, p.KEY, many * step, number)[first * step :], count, step, made[0])
    if entry[p.BIAS]:
        bias = _numbers(entry, p.BIAS, many, number)
        for r in range(rows):
            for i in range(count):
                made[0, r, i] += widened(bias[first + i])
    if entry[p.MODE] == p.ADD:
        total = _rows(entry, p.OUT, rows, entry[p.ACROSS], float64)
        for r in range(rows):
            for i in range(count):
                total[r, first + i] += np.float64(made[0, r, i])
        return
    if entry[p.MODE] == p.GATE:
        other = _numbers(entry, p.OTHER, many * step, number)[first * step :]
        score(inputs, other, count, step, made[1])
        gate(made[0, :rows, :count], made[1])
    out = _rows(entry, p.OUT, rows, entry[p.ACROSS], float32)
    for r in range(rows):
        for i in range(count):
            out[r, first + i] = made[0, r, i]


@plain
def _attend(entry, ordinal, job, scores, finely, number):
    """PIECE tokens of one KV head of one part, keys `[MANY, WIDTH]` and values `[MANY, DEPTH]`, read by
    the ROWS queries from ROW on. OUT `[jobs, most, DEPTH + 2]` gets its rows of weighted values, maximum
    score and sum of exponentials."""
    rows, many, width, depth = entry[p.ROWS], entry[p.MANY], entry[p.WIDTH], entry[p.DEPTH]
    step, step_v, most = entry[p.KEY_STEP], entry[p.VALUE_STEP], entry[p.MOST]
    start = ordinal * p.PIECE
    tokens = min(many - start, p.PIECE)
    key = _numbers(entry, p.KEY, many * step, number)[start * step :]
    value = _numbers(entry, p.VALUE, many * step_v, number)[start * step_v :]
    asked = _rows(entry, p.GIVEN, entry[p.ROW] + rows, width, float32)[entry[p.ROW] :]
    out = _rows(entry, p.OUT, (job + 1) * most, depth + 2, float32)[job * most :][:rows]
    if entry[p.FINE]:
        attend_finely(
            asked, key, step, value, step_v, finely[:tokens], finely[p.PIECE :][:depth], out
        )
    else:
        score(asked, key, tokens, step, scores)
        soften(scores, tokens, out)
        mix(scores, value, tokens, step_v, out)


@plain
def _merge(task, entry, row, sums):
    """The attention of a row over the pieces of it that phase ATTENDED left, in the order of its entries:
    values by mass under one maximum. Query `[base, kv_heads, branches, heads]` goes to OUT `[base,
    branches, kv_heads, heads, DEPTH]`."""
    depth, most = entry[p.DEPTH], entry[p.MOST]
    phase = _line(task, 1 + entry[p.ATTENDED])
    pieces = _rows(entry, p.GIVEN, phase[p.JOBS] * most, depth + 2, float32)
    head = 1 + carray(task, p.FIELDS)[p.PHASES] + phase[p.ENTRY]
    top, mass = np.float32(-np.inf), 0.0
    for at in range(head, head + phase[p.ENTRIES]):
        part = _line(task, at)
        mine = row - part[p.ROW]
        for job in range(part[p.FIRST], part[p.FIRST] + _jobs(part, mine)):
            top = max(top, pieces[job * most + mine, depth])
    sums[:depth] = 0
    for at in range(head, head + phase[p.ENTRIES]):
        part = _line(task, at)
        mine = row - part[p.ROW]
        for job in range(part[p.FIRST], part[p.FIRST] + _jobs(part, mine)):
            piece = pieces[job * most + mine]
            share = np.exp(np.float64(piece[depth]) - np.float64(top))
            mass += share * np.float64(piece[depth + 1])
            for j in range(depth):
                sums[j] += share * np.float64(piece[j])
    to = _place(row, entry) * depth
    out = _numbers(entry, p.OUT, to + depth, float32)[to:]
    for j in range(depth):
        out[j] = sums[j] / mass


@plain
def _jobs(part, row):
    """How many pieces a part has for one of its own rows; none for a row of somebody else."""
    if row < 0 or row >= part[p.ROWS]:
        return 0
    return (part[p.MANY] + p.PIECE - 1) // p.PIECE


@plain
def _place(row, entry):
    """Where `[base, kv_heads, branches, heads]` number `row` is in `[base, branches, kv_heads, heads]`."""
    heads, kv_heads, branches = entry[p.HEADS], entry[p.KV_HEADS], entry[p.BRANCHES]
    rest, head = row // heads, row % heads
    rest, branch = rest // branches, rest % branches
    base, kv_head = rest // kv_heads, rest % kv_heads
    return ((base * branches + branch) * kv_heads + kv_head) * heads + head


@plain
def _norm(entry, row, number):
    width = entry[p.WIDTH]
    hidden = _rows(entry, p.GIVEN, row + 1, width, float64)[row]
    out = _rows(entry, p.OUT, row + 1, width, float32)[row]
    normalize(hidden, _numbers(entry, p.KEY, width, number), _double(entry, p.EPSILON), out)


@plain
def _prepare(entry, row, number):
    """Row `row` of GIVEN `[rows, heads + 2 kv_heads, WIDTH]`: its queries to OUT `[base, kv_heads,
    branches, group, WIDTH]`, its keys and values to their slots `[rows, kv_heads, WIDTH]`."""
    width, heads, kv_heads = entry[p.WIDTH], entry[p.HEADS], entry[p.KV_HEADS]
    branches, step, epsilon = entry[p.BRANCHES], entry[p.HEAD_STEP], _double(entry, p.EPSILON)
    group, every = heads // kv_heads, heads + 2 * kv_heads
    made = _rows(entry, p.GIVEN, (row + 1) * every, width, float32)[row * every :]
    cos = _rows(entry, p.COS, row + 1, width, float32)[row]
    sin = _rows(entry, p.SIN, row + 1, width, float32)[row]
    base, branch = row // branches, row % branches
    for h in range(heads):
        kv_head, head = h // group, h % group
        to = (((base * kv_heads + kv_head) * branches + branch) * group + head) * width
        if entry[p.QUERY_NORM]:
            weight = _numbers(entry, p.QUERY_NORM, width, number)
            normalize(made[h], weight, epsilon, made[h])
        out = _numbers(entry, p.OUT, to + width, float32)[to:]
        turn(made[h], cos, sin, _double(entry, p.SCALE), out)
    for k in range(kv_heads):
        to = row * entry[p.ROWS] + k * step
        if entry[p.KEY_NORM]:
            weight = _numbers(entry, p.KEY_NORM, width, number)
            normalize(made[heads + k], weight, epsilon, made[heads + k])
        turn(made[heads + k], cos, sin, 1.0, _numbers(entry, p.KEYS, to + width, number)[to:])
        value = _numbers(entry, p.VALUES, to + width, number)[to:]
        for j in range(width):
            value[j] = narrowed(made[heads + kv_heads + k, j], value[j])
