"""What compiled code needs beyond what Numba offers: numbers that are addresses or bits, stored numbers
widened and narrowed, and counters that several threads share."""

import os
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import float32, float64, int64, types, uint16
from numba.extending import intrinsic


@intrinsic
def address(_: object, number: types.Type) -> object:
    """An int64 as the address that it is."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(int64), generate


@intrinsic
def widened(_: object, number: types.Type) -> object:
    """A stored number as float32: itself, or the bfloat16 whose bits it is."""

    def generate(context, builder, signature, arguments):
        if number == float32:
            return arguments[0]
        word = builder.zext(arguments[0], ir.IntType(32))
        return builder.bitcast(builder.shl(word, ir.IntType(32)(16)), ir.FloatType())

    return float32(number), generate


@intrinsic
def narrowed(_: object, number: types.Type, like: types.Type) -> object:
    """A float32 as it is stored where `like` is: itself, or the bits of the nearest bfloat16, of two
    equally near the even one. Not for NaN."""

    def generate(context, builder, signature, arguments):
        if like == float32:
            return arguments[0]
        word = builder.bitcast(arguments[0], ir.IntType(32))
        odd = builder.and_(builder.lshr(word, ir.IntType(32)(16)), ir.IntType(32)(1))
        word = builder.add(word, builder.add(odd, ir.IntType(32)(0x7FFF)))
        return builder.trunc(builder.lshr(word, ir.IntType(32)(16)), ir.IntType(16))

    return (float32 if like == float32 else uint16)(float32, like), generate


def _reread(source: types.Type, wanted: types.Type, made: ir.Type) -> Callable[..., Any]:
    """A function that takes the bits of one type as another."""

    @intrinsic
    def reread(_: object, number: types.Type) -> object:
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], made)

        return wanted(source), generate

    return reread


bits = _reread(float32, types.int32, ir.IntType(32))
number = _reread(types.int32, float32, ir.FloatType())
double = _reread(int64, float64, ir.DoubleType())


@intrinsic
def raised(_: object, task: types.Type, place: types.Type) -> object:
    """Add one to `task[place]`, which all threads share; gives what it was."""

    def generate(context, builder, signature, arguments):
        counter = builder.gep(arguments[0], [arguments[1]])
        return builder.atomic_rmw("add", counter, ir.IntType(64)(1), "seq_cst")

    return int64(task, int64), generate


@intrinsic
def seen(_: object, task: types.Type, place: types.Type) -> object:
    """`task[place]` as it is now, and with it all that was written before it was."""

    def generate(context, builder, signature, arguments):
        counter = builder.gep(arguments[0], [arguments[1]])
        return builder.load_atomic(counter, "acquire", align=8)

    return int64(task, int64), generate


@intrinsic
def stand_aside(_: object) -> object:
    """Let another thread have this core, where the system can be asked for that."""

    def generate(context, builder, signature, arguments):
        if hasattr(os, "sched_yield"):
            kind = ir.FunctionType(ir.IntType(32), [])
            function = builder.module.globals.get("sched_yield")
            function = function or ir.Function(builder.module, kind, "sched_yield")
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate
