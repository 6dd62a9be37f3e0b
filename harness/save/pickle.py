"""`save=pickle`: a sequence of pickles `(name, dtype, shape, bytes)`, one per tensor.

Any pickle library reads them. We read them without unpickling: only the few opcodes that build
tuples of text, numbers and bytes are on the allow-list, so nothing can be imported or called.
"""

import pickle
from collections.abc import Iterator
from typing import Any

import torch

from harness.foreign import Budget
from harness.save.base import Format, tensor_of
from harness.save.streaming import Stream
from harness.snapshot.digest import tensor_bytes
from harness.snapshot.torch_file import bounded

OVERHEAD = 16 << 20  # bytes of pickle around all tensors of a file, at most
OPCODES = 128  # of one tensor; it takes about 20
SKIPPED = 1 << 14  # tensors of a file that others share and this snapshot does not use

_VALUES = {"SHORT_BINUNICODE", "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1",
           "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}  # fmt: skip
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = {"PROTO", "FRAME", "MEMOIZE"}


class Pickle(Format):
    extension = "pkl"

    def write(self, sink: Any, stream: Stream) -> None:
        """One pickle (protocol 5) per tensor."""
        for entry, (name, tensor) in zip(stream.entries, stream, strict=True):
            data = pickle.PickleBuffer(tensor_bytes(tensor).toreadonly())
            pickle.Pickler(sink, protocol=5).dump((name, entry.dtype, tuple(entry.shape), data))

    def read(self, source: Any, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` for every name in `wanted`; others are skipped, up to the end of the file."""
        left, skipped = set(wanted), 0
        file = _Bounded(source)
        while not source.ended():
            name, dtype, shape, data = _plain(file)
            if name in left:
                left.remove(name)
                yield name, tensor_of(data, wanted[name], dtype, shape)
            elif (skipped := skipped + 1) > SKIPPED:
                raise ValueError("it holds far more tensors than the manifest says")
        if left:
            raise ValueError(f"it does not hold {sorted(left)[0]}")


class _Bounded:
    """The file as `pickletools` reads it: no read is longer than what is left of the file."""

    def __init__(self, source: Any):
        self.read = source.read

    def readline(self) -> bytes:
        raise ValueError("it holds text opcodes, which are not allowed")


def _plain(file: _Bounded) -> tuple[str, str, tuple[int, ...], bytes]:
    """The next pickle. Raises ValueError for any opcode beyond the allow-list."""
    stack: list[Any] = []
    marks: list[int] = []
    for kind, argument, _ in bounded(file, Budget(items=OPCODES)):
        if kind in _VALUES:
            stack.append(argument)
        elif kind in _TUPLES or (kind == "TUPLE" and marks):
            start = marks.pop() if kind == "TUPLE" else len(stack) - _TUPLES[kind]
            if start < 0:
                raise ValueError("its pickle takes more than there is")
            stack[start:] = [tuple(stack[start:])]
        elif kind == "MARK":
            marks.append(len(stack))
        elif kind != "STOP" and kind not in _IGNORED:
            raise ValueError(f"its pickle wants to {kind}, which is not on the allow-list")
        if len(stack) > 16 or len(marks) > 4:
            raise ValueError("its pickle is nested too deeply")
    match stack:
        case [(str(name), str(dtype), tuple(shape), bytes(data))]:
            return name, dtype, shape, data
    raise ValueError("its pickle is not (name, dtype, shape, bytes)")
