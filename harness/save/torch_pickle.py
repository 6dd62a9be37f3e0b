"""The pickle inside a `torch.save` file as data: which tensor lies in which storage. Nothing is built.

A machine of the few opcodes that `torch.save` writes for a dict of plain tensors. Names of classes and
functions stay names; what they would be called with is looked at, never called.
"""

from dataclasses import dataclass
from typing import Any

from harness.save.pickle import bounded

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "BFloat16Storage": "bfloat16",
    "HalfStorage": "float16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
    "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": None,
}  # fmt: skip
REBUILD = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3")
_VALUES = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"}
_CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}


@dataclass(frozen=True)
class Name:
    """A class or function that the pickle names."""

    text: str


@dataclass(frozen=True)
class Stored:
    """A tensor: its storage's number, dtype (None: the storage does not say), offset and shape."""

    storage: str
    dtype: str | None
    offset: int
    shape: tuple[int, ...]


_MARK = object()
_ORDERED = object()  # an empty OrderedDict


def tensors(data: bytes, limit: int) -> dict[str, Stored]:
    """Name -> tensor. limit: opcodes at most. Raises ValueError for anything else in the pickle."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for opcode, argument, _ in bounded(data, limit):
            if opcode == "STOP":
                break
            _step(opcode, argument, stack, memo)
    except IndexError:
        raise ValueError("its pickle takes more than there is") from None
    match stack:
        case [dict(table)] if all(isinstance(v, Stored) for v in table.values()):
            return table
    raise ValueError("it holds no dict of tensors")


def _step(opcode: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if opcode in _VALUES:
        stack.append(argument)
    elif opcode in _CONSTANTS:
        stack.append(_CONSTANTS[opcode])
    elif opcode in ("BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif opcode in ("BINGET", "LONG_BINGET"):
        if argument not in memo:
            raise ValueError("its pickle refers to what it does not hold")
        stack.append(memo[argument])
    elif opcode == "MARK":
        stack.append(_MARK)
    elif opcode == "EMPTY_DICT":
        stack.append({})
    elif opcode == "EMPTY_TUPLE":
        stack.append(())
    elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(opcode[-1])
        stack.append(tuple([stack.pop() for _ in range(count)][::-1]))
    elif opcode == "TUPLE":
        stack.append(tuple(_marked(stack)))
    elif opcode == "GLOBAL":
        stack.append(_named(argument))
    elif opcode == "BINPERSID":
        stack.append(_storage(stack.pop()))
    elif opcode == "REDUCE":
        arguments, function = stack.pop(), stack.pop()
        stack.append(_rebuilt(function, arguments))
    elif opcode == "SETITEMS":
        items = _marked(stack)
        _set(stack, items)
    elif opcode == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _set(stack, [key, value])
    elif opcode != "PROTO":
        raise ValueError(f"its pickle wants to {opcode}, which is not on the allow-list")
    if len(stack) > 1 << 20:
        raise ValueError("its pickle is nested too deeply")


def _marked(stack: list[Any]) -> list[Any]:
    marked = []
    while (value := stack.pop()) is not _MARK:
        marked.append(value)
    return marked[::-1]


def _named(text: str) -> Name:
    module, _, name = text.partition(" ")
    known = text in (*REBUILD, "collections OrderedDict")
    known = known or (module in ("torch", "torch.storage") and name in STORAGES)
    if not known and not (module == "torch" and name in DTYPES):
        raise ValueError(f"its pickle names {text[:80]!r}, which is not on the allow-list")
    return Name(text)


DTYPES = {"float8_e4m3fn", "float8_e5m2", *filter(None, STORAGES.values())}


def _storage(value: Any) -> tuple[str, str | None]:
    """`(number, dtype)` of a storage on the CPU."""
    match value:
        case ("storage", Name(text), str(number), str(), int()) if number.isdecimal():
            kind = text.partition(" ")[2]
            if kind in STORAGES:
                return number, STORAGES[kind]
    raise ValueError("its pickle refers to something that is no storage")


def _rebuilt(function: Any, arguments: Any) -> Any:
    match function, arguments:
        case Name("collections OrderedDict"), ():
            return _ORDERED
        case Name(text), (
            (str(number), dtype),
            int(offset),
            tuple(shape),
            tuple(stride),
            False,
            hooks,
            *more,
        ):
            plain = text in REBUILD and hooks is _ORDERED
            sizes = all(type(s) is int and 0 <= s < 1 << 40 for s in (offset, *shape))
            if plain and sizes and len(shape) <= 8 and _contiguous(shape, stride):
                if not more:
                    return Stored(number, dtype, offset, shape)
                if len(more) == 1 and isinstance(more[0], Name) and dtype is None:
                    return Stored(number, more[0].text.partition(" ")[2], offset, shape)
    raise ValueError("it holds something that is not laid out plainly")


def _contiguous(shape: tuple[int, ...], stride: tuple[Any, ...]) -> bool:
    if 0 in shape:
        return len(shape) == len(stride)
    expected, step = [], 1
    for size in reversed(shape):
        expected.append(step)
        step *= size
    pairs = zip(shape, stride, reversed(expected), strict=False)
    return len(shape) == len(stride) and all(s == 1 or got == want for s, got, want in pairs)


def _set(stack: list[Any], items: list[Any]) -> None:
    holder = stack[-1]
    if not isinstance(holder, dict) or len(items) % 2:
        raise ValueError("it holds no dict of tensors")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str) or key in holder or not isinstance(value, Stored):
            raise ValueError("it does not hold plain tensors by name")
        holder[key] = value
