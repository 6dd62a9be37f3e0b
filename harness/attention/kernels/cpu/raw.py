"""What compiled code needs beyond what Numba offers: addresses, stored numbers widened and narrowed, and
counters that several threads share."""

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int64, njit, types
from numba.extending import intrinsic, overload


@intrinsic
def address(_, number):
    """An int64 as the address that it is."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(int64), generate


@intrinsic
def raised(_, task, place):
    """Add one to `task[place]`, which all threads share; gives what it was."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", builder.gep(*_place(arguments)), _ONE, "seq_cst")

    return int64(task, int64), generate


@intrinsic
def seen(_, task, place):
    """`task[place]` as it is now, and with it all that was written before it was."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(builder.gep(*_place(arguments)), "acquire", align=8)

    return int64(task, int64), generate


_ONE = ir.IntType(64)(1)


def _place(arguments: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
    return arguments[0], arguments[1:]


if hasattr(os, "sched_yield"):
    stand_aside = types.ExternalFunction("sched_yield", types.int32())
else:
    stand_aside = njit(lambda: 0)


def widened(stored: Any) -> Any:
    """A stored number as float32: itself, or the bfloat16 whose bits it is."""


@overload(widened)
def _widened(stored):
    if stored == float32:
        return lambda stored: stored
    return lambda stored: np.uint32(np.uint32(stored) << np.uint32(16)).view(np.float32)


def narrowed(number: Any, like: Any) -> Any:
    """A float32 as it is stored where `like` is: itself, or the bits of the nearest bfloat16, of two
    equally near the even one. Not for NaN."""


@overload(narrowed)
def _narrowed(number, like):
    if like == float32:
        return lambda number, like: number

    def rounded(number, like):
        word = np.float32(number).view(np.uint32)
        return np.uint16((word + ((word >> 16) & 1) + 0x7FFF) >> 16)

    return rounded
