"""A slot file of llama.cpp: magic, version, packed tokens, then per stream of its K/V cache the cells'
positions, the keys of all layers and the values of all layers, which may lie transposed.

The layout is that of `llama_kv_cache::state_write_data`; other kinds of memory (windows, recurrent) put
other blocks there, and are refused because bytes are left over or missing. What is kept as codes may have
been turned by a Hadamard matrix first, of the sizes that stand before the layers: it is turned back.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.engine.saved import blocks
from harness.engine.saved.base import LAYERS_LIMIT, Layers, Saved
from harness.foreign import Budget, mapped
from harness.snapshot.codes import Codes, dense

MAGIC = b"qsgg"  # LLAMA_STATE_SEQ_MAGIC, little endian
STREAMS_LIMIT = 256
TURNED_LIMIT = 1024  # of a Hadamard matrix
BITS = {"q4_0": 4, "q4_1": 4, "q5_0": 5, "q5_1": 5, "q8_0": 8}
SIZES = {
    0: (4, 1),
    1: (2, 1),
    2: (18, 32),
    3: (20, 32),
    6: (22, 32),
    7: (24, 32),
    8: (34, 32),
    30: (2, 1),
}  # bytes of a block, its numbers
NAMES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 30: "bf16"}


def read(path: Path) -> Saved:
    """Tokens and what the layers are, at once; keys and values when they are asked for."""
    raw, budget = mapped(path), Budget()
    version, count = struct.unpack_from("<II", raw, 4)
    offset = 12
    if not 1 <= version <= 64 or offset + 4 * count > len(raw):
        raise ValueError(f"version {version} with {count} tokens does not fit {len(raw)} bytes")
    budget.spend(count)
    words = list(struct.unpack_from(f"<{count}i", raw, offset))
    offset += 4 * count
    if version >= 4 and words[:2] == [-1, 1]:  # a header of its own, then how many tokens
        words = words[3 : 3 + words[2]]
    facts = {"version": version, "tokens": len(words), "bytes": len(raw)}
    layers: list[tuple[_Part, _Part]] = []
    for marks in (2, 0):  # newer files have two more numbers before the layers
        try:
            layers = _Memory(raw, offset, marks, budget).layers()
            break
        except (ValueError, struct.error) as problem:
            facts.setdefault("keys and values", f"not read: {problem}")
    if layers:
        facts |= {"layers": len(layers), "keys and values": "of positions 0 and on"}
    rows: list[dict[str, Any]] = []
    for layer, (key, value) in enumerate(layers):
        kind = ", ".join(dict.fromkeys((NAMES[key.kind], NAMES[value.kind])))
        rows.append({"layer": layer, "kind": "KV", "shape": key.shape, "dtype": kind})
    holds = frozenset({"kv_cache", "token_buffer", "positions"})

    def pairs() -> Layers:
        if not layers:
            raise ValueError(facts.get("keys and values", "it holds none"))
        return [(key.numbers(raw), value.numbers(raw)) for key, value in layers]

    bits = [b for named, b in BITS.items() if any(named in r["dtype"] for r in rows)]
    grid = (min(bits), blocks.BLOCK) if bits else None
    return Saved("llama.cpp slot", facts, rows, holds, words, pairs, None, grid)


@dataclass(frozen=True)
class _Part:
    """Keys or values of a layer: `nbytes` from `start` on of ggml's type `kind`, in `rows`. shape: cells, numbers of
    each. columns: a row is one number of all cells, not all numbers of one. turned: by a Hadamard matrix of that size,
    0 by none."""

    start: int
    nbytes: int
    kind: int
    rows: int
    shape: list[int]
    columns: bool
    turned: int

    def numbers(self, raw: Any) -> torch.Tensor | Codes:
        """`[1, 1, cells, width]`."""
        stored = _opened(raw, self)
        stored = dense(stored).mT.contiguous() if self.columns else stored
        if not self.turned:
            return stored
        if self.turned & (self.turned - 1) or stored.shape[3] % self.turned:
            raise ValueError(
                f"its numbers are turned by {self.turned}, which {stored.shape[3]} are not made of"
            )
        return blocks.unturned(dense(stored), self.turned)


class _Memory:
    """The bytes behind the tokens, walked from front to back."""

    def __init__(self, raw: Any, offset: int, marks: int, budget: Budget):
        self._raw, self._at, self._marks, self._budget = raw, offset, marks, budget

    def layers(self) -> list[tuple[_Part, _Part]]:
        out: list[tuple[_Part, _Part]] = []
        for _ in range(self._number("I", STREAMS_LIMIT)):
            if cells := self._number("I", len(self._raw)):
                self._positions(cells)
                out += self._pairs(cells)
        if self._at != len(self._raw):
            raise ValueError(f"{len(self._raw) - self._at} bytes of another kind of memory follow")
        return out

    def _pairs(self, cells: int) -> list[tuple[_Part, _Part]]:
        columns, count = self._number("I", 1), self._number("I", LAYERS_LIMIT)
        turned = [self._number("I", TURNED_LIMIT) for _ in range(self._marks)] or [0, 0]
        keys = [self._part(cells, False, turned[0]) for _ in range(count)]
        return list(zip(keys, [self._part(cells, bool(columns), turned[1]) for _ in range(count)]))

    def _positions(self, cells: int) -> None:
        """Every cell has to hold the token of its place: no gap, nothing shared or shifted. A cell is its position,
        how many sequences have it, and these, which are as many for each."""
        (several,) = struct.unpack_from("<I", self._raw, self._at + 4)
        size = 4 * (2 + min(several, STREAMS_LIMIT))
        table = np.frombuffer(self._bytes(cells * size), np.int32).reshape(cells, -1)
        wrong = (table[:, 0] != np.arange(cells)) | (table[:, 1] != several)
        if wrong.any():
            cell = int(wrong.argmax())
            raise ValueError(f"cell {cell} is of position {table[cell, 0]}")

    def _part(self, cells: int, columns: bool, turned: int) -> _Part:
        """A row per cell; or, in columns, a row per number: codes never are, their blocks lie along a row."""
        self._budget.spend()
        kind, rows = self._number("i"), cells
        if kind not in NAMES:
            raise ValueError(f"its keys and values are of type {kind}, which is not read")
        if columns:
            nbytes = cells * self._number("I", 8)
            rows = self._number("I", len(self._raw))
            nbytes *= rows
        else:
            nbytes = cells * self._number("Q", len(self._raw))
        size, many = SIZES[kind]
        if not nbytes or nbytes // rows % size:
            raise ValueError(f"its {rows} rows are no {NAMES[kind]} in {nbytes} bytes")
        numbers, start = nbytes // rows // size * many, self._at
        self._bytes(nbytes)
        shape = [numbers, rows] if columns else [rows, numbers]
        return _Part(start, nbytes, kind, rows, shape, columns, turned)

    def _number(self, form: str, most: int | None = None) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._raw, self._at)
        self._at += struct.calcsize(f"<{form}")
        if most is not None and not 0 <= value <= most:
            raise ValueError(f"{value} stands where at most {most} can")
        return value

    def _bytes(self, count: int) -> memoryview:
        if self._at + count > len(self._raw):
            raise ValueError(f"it ends {self._at + count - len(self._raw)} bytes early")
        self._at += count
        return memoryview(self._raw)[self._at - count : self._at]


def _opened(raw: Any, part: _Part) -> torch.Tensor | Codes:
    """`[1, 1, rows, numbers]` in the file's own floating-point type, as its codes, or in float32 where these
    are of a kind that a snapshot does not keep."""
    codes = np.frombuffer(raw, np.uint8, part.nbytes, part.start).reshape(part.rows, -1)
    plain = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}.get(part.kind)
    if plain is not None:
        return torch.from_numpy(codes.copy()).view(plain)[None, None]
    if part.kind in (blocks.Q4_0, blocks.Q8_0):
        return blocks.ggml(codes, part.kind)
    from gguf import dequantize
    from gguf.constants import GGMLQuantizationType

    return torch.from_numpy(dequantize(codes, GGMLQuantizationType(part.kind)).copy())[None, None]
