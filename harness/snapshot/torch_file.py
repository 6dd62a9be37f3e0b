"""A file of `torch.save` as data: which tensor lies where in it. Nothing is built, nothing is called.

The library's loader builds more than tensors and allocates what a pickle asks for, so it is given no file from
elsewhere. Here the zip's table is read, and the pickle by a machine of the few opcodes that `torch.save` writes for
tensors, dicts, lists and plain objects. Names of classes and functions stay names.
"""

import mmap
import pickletools
import struct
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from harness.foreign import Budget

PICKLE = 64 << 20  # bytes of data.pkl at most; it holds names and shapes only
OPCODES = 64  # for each record
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "BFloat16Storage": "bfloat16",
    "HalfStorage": "float16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
    "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": None,
}  # fmt: skip
DTYPES = {"float8_e4m3fn", "float8_e5m2", *filter(None, STORAGES.values())}
REBUILD = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3")
PARAMETER, ORDERED, DEVICE = "torch._utils _rebuild_parameter", "collections OrderedDict", "torch device"  # fmt: skip
_VALUES = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}
_MADE = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_MARK = object()


@dataclass(frozen=True)
class Name:
    """A class or function that the pickle names."""

    text: str


@dataclass(frozen=True)
class Stored:
    """A tensor: its storage's number, dtype (None: the storage does not say), offset, shape and strides."""

    storage: str
    dtype: str | None
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def plain(self) -> bool:
        """Whether its numbers lie one behind the other from the storage's begin on."""
        expected = [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        rows = zip(self.shape, self.stride, expected, strict=True)
        return not self.offset and all(s == 1 or a == b or 0 in self.shape for s, a, b in rows)


@dataclass(frozen=True)
class Object:
    """What the pickle would build of a class: its name, and its attributes."""

    name: str
    state: dict[str, Any] = field(default_factory=dict)


class Archive:
    """The zip of a `torch.save`, mapped. Raises ValueError for one that is not as torch writes it: records stored
    plainly, each once, no more than the file has."""

    def __init__(self, buffer: mmap.mmap):
        self._buffer = buffer
        try:
            with zipfile.ZipFile(buffer) as archive:  # type: ignore[call-overload]  # it reads and seeks
                records = archive.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as problem:
            raise ValueError(f"it is no zip archive: {problem}") from None
        if any(r.compress_type != zipfile.ZIP_STORED or r.flag_bits & 1 for r in records):
            raise ValueError("it holds compressed records, which torch.save never writes")
        if sum(r.file_size for r in records) > len(buffer):
            raise ValueError("its records claim more bytes than the file has")
        if any(r.filename.count("/") > 2 or ".." in r.filename for r in records):
            raise ValueError("it holds a record with a strange name")
        self._records = {r.filename: r for r in records}
        if len(self._records) != len(records):
            raise ValueError("it holds two records of one name")
        stems = [n.removesuffix("/data.pkl") for n in self._records if n.endswith("/data.pkl")]
        if len(stems) != 1:
            raise ValueError("it holds no data.pkl")
        self._stem = stems[0]

    def described(self, classes: Collection[str] = ()) -> Any:
        """What it holds: dicts, lists, tuples and plain values, a `Stored` for a tensor, an `Object` for what is of
        one of `classes`. Raises ValueError for anything else in the pickle."""
        start, nbytes = self._place(f"{self._stem}/data.pkl")
        if nbytes > PICKLE:
            raise ValueError("its data.pkl is larger than any that torch.save writes for tensors")
        budget = Budget(items=OPCODES * (1 + len(self._records)))
        return _Machine(classes).run(bytes(self._buffer[start : start + nbytes]), budget)

    def storage(self, stored: Stored) -> tuple[int, int]:
        """Where the bytes that it is a view of lie: `(offset in the file, size)`."""
        return self._place(f"{self._stem}/data/{stored.storage}")

    def tensor(self, stored: Stored) -> torch.Tensor:
        """A view of the file's own bytes, never larger than these."""
        start, nbytes = self.storage(stored)
        if stored.dtype is None:
            raise ValueError("a tensor does not say of which numbers it is")
        dtype = getattr(torch, stored.dtype)
        last = sum((s - 1) * step for s, step in zip(stored.shape, stored.stride, strict=True))
        held = nbytes // dtype.itemsize
        if prod(stored.shape) > held or (prod(stored.shape) and stored.offset + last >= held):
            raise ValueError(
                f"a tensor of {list(stored.shape)} claims more than its {nbytes} bytes"
            )
        if not held:
            return torch.empty(stored.shape, dtype=dtype)
        raw = torch.frombuffer(self._buffer, dtype=torch.uint8, count=nbytes, offset=start)
        flat = (raw if start % dtype.itemsize == 0 else raw.clone())[: held * dtype.itemsize]
        return flat.view(dtype).as_strided(stored.shape, stored.stride, stored.offset)

    def _place(self, name: str) -> tuple[int, int]:
        if name not in self._records:
            raise ValueError(f"it has no record {name[:80]}")
        info = self._records[name]
        header = bytes(self._buffer[info.header_offset : info.header_offset + 30])
        if len(header) != 30 or header[:4] != b"PK\x03\x04":
            raise ValueError(f"its record {name[:80]} has no header")
        start = info.header_offset + 30 + sum(struct.unpack_from("<2H", header, 26))
        if info.compress_size != info.file_size or start + info.file_size > len(self._buffer):
            raise ValueError(f"its record {name[:80]} ends past the file")
        return start, info.file_size


def bounded(data: Any, budget: Budget) -> Iterator[tuple[str, Any, Any]]:
    """`(opcode, argument, place)` of a pickle, each an item of `budget`: some read nothing, so the size of a file
    says little about how many there are."""
    for opcode, argument, place in pickletools.genops(data):
        budget.spend()
        yield opcode.name, argument, place


class _Machine:
    def __init__(self, classes: Collection[str]):
        self._classes = classes
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes, budget: Budget) -> Any:
        try:
            for opcode, argument, _ in bounded(data, budget):
                if opcode == "STOP":
                    break
                self._step(opcode, argument)
        except (IndexError, KeyError):
            raise ValueError("its pickle takes more than there is") from None
        if len(self._stack) != 1:
            raise ValueError("its pickle is not one object")
        return self._stack[0]

    def _step(self, opcode: str, argument: Any) -> None:
        stack = self._stack
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _MADE:
            stack.append(_MADE[opcode]())
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif opcode == "MARK":
            stack.append(_MARK)
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple([stack.pop() for _ in range(int(opcode[-1]))][::-1]))
        elif opcode == "TUPLE":
            stack.append(tuple(self._marked()))
        elif opcode == "GLOBAL":
            stack.append(self._named(argument))
        elif opcode == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif opcode in ("REDUCE", "NEWOBJ"):
            arguments, function = stack.pop(), stack.pop()
            stack.append(self._built(function, arguments))
        elif opcode == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Object) and isinstance(state, dict):
                stack[-1].state.update(state)
            elif not isinstance(stack[-1], dict):  # which torch gives the versions of its modules
                raise ValueError("it holds something that is not laid out plainly")
        elif opcode in ("APPEND", "APPENDS", "SETITEM", "SETITEMS"):
            self._fill(opcode)
        elif opcode != "PROTO":
            raise ValueError(f"its pickle wants to {opcode}, which is not on the allow-list")

    def _marked(self) -> list[Any]:
        marked = []
        while (value := self._stack.pop()) is not _MARK:
            marked.append(value)
        return marked[::-1]

    def _fill(self, opcode: str) -> None:
        keyed, several = opcode.startswith("SETITEM"), opcode.endswith("S")
        count = 2 if keyed else 1
        items = self._marked() if several else [self._stack.pop() for _ in range(count)][::-1]
        holder = self._stack[-1]
        if not keyed and isinstance(holder, list):
            holder.extend(items)
            return
        if not isinstance(holder, dict) or not keyed or len(items) % 2:
            raise ValueError("its pickle fills something that is no list or dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str) or key in holder:
                raise ValueError("it does not hold its parts by name, each once")
            holder[key] = value

    def _named(self, text: str) -> Name:
        module, _, name = text.partition(" ")
        known = {*REBUILD, PARAMETER, ORDERED, DEVICE, *self._classes}
        if (
            text in known
            or (module in ("torch", "torch.storage") and name in STORAGES)
            or (module == "torch" and name in DTYPES)
        ):
            return Name(text)
        raise ValueError(f"its pickle names {text[:80]!r}, which is not on the allow-list")

    def _built(self, function: Any, arguments: Any) -> Any:
        match function, arguments:
            case Name(text), () if text == ORDERED:
                return {}
            case Name(text), () if text in self._classes:
                return Object(text)
            case Name(text), (str(), *_) if text == DEVICE:
                return function
            case Name(text), (Stored() as tensor, bool(), {**hooks}) if text == PARAMETER:
                if not hooks:
                    return tensor
            case Name(text), (
                (str(number), dtype), int(offset), tuple(shape), tuple(stride), bool(), {**hooks}, *more,
            ):  # fmt: skip
                sizes = all(type(s) is int and 0 <= s < 1 << 40 for s in (offset, *shape, *stride))
                like = len(shape) == len(stride) <= 8 and not hooks
                if text in REBUILD and sizes and like:
                    if not more:
                        return Stored(number, dtype, offset, shape, stride)
                    if len(more) == 1 and isinstance(more[0], Name) and dtype is None:
                        kind = more[0].text.partition(" ")[2]
                        return Stored(number, kind, offset, shape, stride)
        raise ValueError("it holds something that is not laid out plainly")


def _storage(value: Any) -> tuple[str, str | None]:
    """`(number, dtype)` of a storage, whatever device it lay on."""
    match value:
        case ("storage", Name(text), str(number), str(), int()) if number.isdecimal():
            kind = text.partition(" ")[2]
            if kind in STORAGES:
                return number, STORAGES[kind]
    raise ValueError("its pickle refers to something that is no storage")
