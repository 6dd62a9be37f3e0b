"""A slot file of llama.cpp: magic, version, packed tokens, then per stream of its K/V cache the cells'
positions, the keys of all layers and the values of all layers, which may lie transposed.

The layout is that of `llama_kv_cache::state_write_data`; other kinds of memory (windows, recurrent) put
other blocks there, and are refused because bytes are left over or missing. What is kept as codes may have
been turned by a Hadamard matrix first, of the sizes that stand before the layers: it is turned back.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.engine.saved import blocks
from harness.engine.saved.base import LAYERS_LIMIT, Layers, Saved
from harness.snapshot.codes import Codes, dense

MAGIC = b"qsgg"  # LLAMA_STATE_SEQ_MAGIC, little endian
STREAMS_LIMIT = 256
TURNED_LIMIT = 1024  # of a Hadamard matrix
BITS = {"q4_0": 4, "q4_1": 4, "q5_0": 5, "q5_1": 5, "q8_0": 8}
NAMES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 30: "bf16"}


def read(path: Path) -> Saved:
    """Tokens are read at once, keys and values when they are asked for."""
    raw = path.read_bytes()
    version, count = struct.unpack_from("<II", raw, 4)
    offset = 12
    if not 1 <= version <= 64 or offset + 4 * count > len(raw):
        raise ValueError(f"version {version} with {count} tokens does not fit {len(raw)} bytes")
    words = list(struct.unpack_from(f"<{count}i", raw, offset))
    offset += 4 * count
    if version >= 4 and words[:2] == [-1, 1]:  # a header of its own, then how many tokens
        words = words[3 : 3 + words[2]]
    facts = {"version": version, "tokens": len(words), "bytes": len(raw)}
    rows: list[dict[str, Any]] = []
    layers: Layers = []
    for marks in (2, 0):  # newer files have two more numbers before the layers
        try:
            rows.clear()
            layers = _Memory(raw, offset, marks).layers(rows)
            break
        except (ValueError, struct.error, ImportError) as problem:
            facts.setdefault("keys and values", f"not read: {problem}")
    if layers:
        facts |= {"layers": len(rows), "keys and values": "of positions 0 and on"}
    holds = frozenset({"kv_cache", "token_buffer", "positions"})

    def pairs() -> Layers:
        if not layers:
            raise ValueError(facts["keys and values"])
        return layers

    bits = [b for named, b in BITS.items() if any(named in r["dtype"] for r in rows)]
    grid = (min(bits), blocks.BLOCK) if bits else None
    return Saved("llama.cpp slot", facts, rows, holds, words, pairs, None, grid)


class _Memory:
    """The bytes behind the tokens, read from front to back."""

    def __init__(self, raw: bytes, offset: int, marks: int):
        self._raw, self._at, self._marks = raw, offset, marks

    def layers(self, rows: list[dict[str, Any]]) -> Layers:
        """A pair per layer, `[1, 1, tokens, kv_heads * head_dim]`; fills `rows`."""
        out: Layers = []
        for _ in range(self._number("I", STREAMS_LIMIT)):
            if cells := self._number("I", len(self._raw)):
                self._positions(cells)
                out += self._pairs(cells, rows)
        if self._at != len(self._raw):
            raise ValueError(f"{len(self._raw) - self._at} bytes of another kind of memory follow")
        return out

    def _pairs(self, cells: int, rows: list[dict[str, Any]]) -> Layers:
        transposed, count = self._number("I", 1), self._number("I", LAYERS_LIMIT)
        turned = [self._number("I", TURNED_LIMIT) for _ in range(self._marks)] or [0, 0]
        keys = [_back(*self._rows(cells), turned[0]) for _ in range(count)]
        read = self._columns if transposed else self._rows
        values = [_back(*read(cells), turned[1]) for _ in range(count)]
        for layer, ((key, kind), (_, other)) in enumerate(zip(keys, values)):
            shape, named = [cells, key.shape[3]], kind if kind == other else f"{kind}, {other}"
            rows.append({"layer": layer, "kind": "KV", "shape": shape, "dtype": named})
        return [(k, v) for (k, _), (v, _) in zip(keys, values)]

    def _positions(self, cells: int) -> None:
        """Every cell has to hold the token of its place: no gap, nothing shared or shifted."""
        for place in range(cells):
            position, sequences = self._number("i"), self._number("I", STREAMS_LIMIT)
            self._bytes(4 * sequences)
            if position != place:
                raise ValueError(f"cell {place} is of position {position}")

    def _rows(self, cells: int) -> tuple[torch.Tensor | Codes, str]:
        """`[1, 1, cells, width]`, a row per cell."""
        kind, width = self._number("i"), self._number("Q", len(self._raw))
        return _opened(self._bytes(cells * width), kind, cells)

    def _columns(self, cells: int) -> tuple[torch.Tensor | Codes, str]:
        """The same, stored as a row per number: codes are not, their blocks lie along a row."""
        kind = self._number("i")
        size, width = self._number("I", 8), self._number("I", len(self._raw))
        values, named = _opened(self._bytes(cells * size * width), kind, width)
        return dense(values).mT.contiguous(), named

    def _number(self, form: str, most: int | None = None) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._raw, self._at)
        self._at += struct.calcsize(f"<{form}")
        if most is not None and not 0 <= value <= most:
            raise ValueError(f"{value} stands where at most {most} can")
        return value

    def _bytes(self, count: int) -> bytes:
        if self._at + count > len(self._raw):
            raise ValueError(f"it ends {self._at + count - len(self._raw)} bytes early")
        self._at += count
        return self._raw[self._at - count : self._at]


def _opened(raw: bytes, kind: int, rows: int) -> tuple[torch.Tensor | Codes, str]:
    """`[1, 1, rows, width]` in the file's own floating-point type, as its codes, or in float32 where these
    are of a kind that a snapshot does not keep."""
    named = NAMES.get(kind, f"type {kind}")
    plain = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}.get(kind)
    if plain is not None:
        return torch.frombuffer(bytearray(raw), dtype=plain).reshape(1, 1, rows, -1), named
    if kind not in NAMES:
        raise ValueError(f"its keys and values are of {named}, which is not read")
    codes = np.frombuffer(raw, np.uint8).reshape(rows, -1)
    if kind in (blocks.Q4_0, blocks.Q8_0):
        return blocks.ggml(codes, kind), named
    from gguf import dequantize
    from gguf.constants import GGMLQuantizationType

    return torch.from_numpy(dequantize(codes, GGMLQuantizationType(kind)).copy())[None, None], named


def _back(stored: torch.Tensor | Codes, named: str, size: int) -> tuple[torch.Tensor | Codes, str]:
    """What was turned by a Hadamard matrix of `size`, as it was before; codes then become numbers."""
    if not size:
        return stored, named
    if size & (size - 1) or stored.shape[3] % size:
        raise ValueError(
            f"its numbers are turned by {size}, which {stored.shape[3]} are not made of"
        )
    return blocks.unturned(dense(stored), size), named
