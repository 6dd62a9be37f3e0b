"""The two inner loops of a decode step in vectors of 16, four query rows at a time, written as LLVM code.

A compiler given plain loops sums each score on its own and keeps the weighted values in memory. Here
sixteen scores are summed together by a tree of shuffles, and values stay in registers over all tokens:
half the instructions, which is what counts where two threads share one core's units.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

LANES = 16
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)


@intrinsic
def dots(_, rows, row, step, stored, first, stride, width, out, column, across):  # fmt: skip
    """`out[row + r, column + t]`: the dot product over `width`, a multiple of 16, of query row `row + r`
    with stored row t, for four r and four t. Steps are in numbers: `step` from one query row to the
    next, `stride` between stored rows (the first begins at `first`), `across` between rows of out."""

    def generate(context, builder, signature, arguments):
        rows, row, step, stored, first, stride, width, out, column, across = arguments
        query = _data(context, builder, signature.args[0], rows)
        keys = _data(context, builder, signature.args[3], stored)
        sums = [cgutils.alloca_once_value(builder, _zeros()) for _ in range(16)]
        lines = [builder.mul(builder.add(row, _int(r)), step) for r in range(4)]
        tokens = [builder.add(first, builder.mul(_int(t), stride)) for t in range(4)]
        with cgutils.for_range_slice(builder, _int(0), width, _int(LANES)) as (j, _):
            loaded = [_load(builder, keys, builder.add(token, j)) for token in tokens]
            for r, line in enumerate(lines):
                asked = _load(builder, query, builder.add(line, j))
                for t, key in enumerate(loaded):
                    _add(builder, sums[4 * r + t], asked, key)
        folded = _folded(builder, [builder.load(s) for s in sums])
        target = _data(context, builder, signature.args[7], out)
        for r in range(4):
            four = builder.shuffle_vector(folded, folded, _order(range(4 * r, 4 * r + 4)))
            line = builder.mul(builder.add(row, _int(r)), across)
            _store(builder, four, target, builder.add(line, column))
        return context.get_dummy_value()

    return types.void(rows, int64, int64, stored, int64, int64, int64, out, int64, int64), generate


def mixing(vectors: int) -> Callable[..., None]:
    """A function that sums `16 * vectors` numbers of each stored row by four rows' weights."""

    @intrinsic
    def mix(_, weights, row, across, stored, first, stride, tokens, out, column, step):  # fmt: skip
        """`out[row + r, column:]`, for four r: the stored rows from `first` on, `stride` apart, times
        `weights[row + r, t]`, summed over `tokens`. across, step: between rows of weights and out."""

        def generate(context, builder, signature, arguments):
            weights, row, across, stored, first, stride, tokens, out, column, step = arguments
            shares = _data(context, builder, signature.args[0], weights)
            values = _data(context, builder, signature.args[3], stored)
            sums = [cgutils.alloca_once_value(builder, _zeros()) for _ in range(4 * vectors)]
            lines = [builder.mul(builder.add(row, _int(r)), across) for r in range(4)]
            with cgutils.for_range(builder, tokens) as loop:
                start = builder.add(first, builder.mul(loop.index, stride))
                places = [builder.add(start, _int(LANES * v)) for v in range(vectors)]
                loaded = [_load(builder, values, place) for place in places]
                for r, line in enumerate(lines):
                    place = builder.gep(shares, [builder.add(line, loop.index)])
                    weight = _everywhere(builder, builder.load(place))
                    for v, value in enumerate(loaded):
                        _add(builder, sums[r * vectors + v], weight, value)
            target = _data(context, builder, signature.args[7], out)
            for r in range(4):
                line = builder.add(builder.mul(builder.add(row, _int(r)), step), column)
                for v in range(vectors):
                    made = builder.load(sums[r * vectors + v])
                    _store(builder, made, target, builder.add(line, _int(LANES * v)))
            return context.get_dummy_value()

        numbers = (int64, int64)
        return types.void(weights, *numbers, stored, *numbers, int64, out, *numbers), generate

    return mix


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return arrayobj.make_array(kind)(context, builder, array).data


def _int(number: int) -> Any:
    return ir.IntType(64)(number)


def _zeros() -> Any:
    return ir.Constant(_FLOATS, [0.0] * LANES)


def _order(places: Any) -> Any:
    places = list(places)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)


def _load(builder: Any, data: Any, place: Any) -> Any:
    """16 numbers as float32, widened if they are the bits of bfloat16."""
    number = data.type.pointee
    vector = ir.VectorType(number, LANES).as_pointer()
    stored = builder.load(builder.bitcast(builder.gep(data, [place]), vector), align=2)
    if isinstance(number, ir.FloatType):
        return stored
    widened = builder.shl(builder.zext(stored, _WORDS), ir.Constant(_WORDS, [16] * LANES))
    return builder.bitcast(widened, _FLOATS)


def _store(builder: Any, vector: Any, data: Any, place: Any) -> None:
    target = builder.bitcast(builder.gep(data, [place]), vector.type.as_pointer())
    builder.store(vector, target, align=4)


def _add(builder: Any, total: Any, left: Any, right: Any) -> None:
    """`total += left * right`, fused where the machine can."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v16f32")
    builder.store(builder.call(fused, [left, right, builder.load(total)]), total)


def _everywhere(builder: Any, number: Any) -> Any:
    one = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, _order([0] * LANES))


def _folded(builder: Any, vectors: list[Any]) -> Any:
    """16 vectors to the one of their sums: neighbours are added, two vectors at a time become one."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        evens, odds = _order(range(0, 2 * LANES, 2)), _order(range(1, 2 * LANES, 2))
        vectors = [
            builder.fadd(builder.shuffle_vector(a, b, evens), builder.shuffle_vector(a, b, odds))
            for a, b in pairs
        ]
    return vectors[0]
