"""What other programs saved, read without running anything of it: an mlx-lm prompt cache, a slot file of
llama.cpp, a `torch.save`d DynamicCache. Each says which of the 13 elements it holds."""

import json
import pickle
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InputProblem
from harness.snapshot.elements import ELEMENTS

SLOT_MAGIC = b"qsgg"  # LLAMA_STATE_SEQ_MAGIC, little endian
HEADER_LIMIT = 2**24  # bytes of a safetensors header that are read
LAYERS_LIMIT = 4096
CACHES = ("DynamicCache", "DynamicLayer", "DynamicSlidingWindowLayer")  # nothing else is unpickled


@dataclass(frozen=True)
class Saved:
    """kind: what wrote it. layers: a row each (`layer`, `kind`, `shape`, `dtype`). tokens: the ids, where
    they are in the file. holds: names of the elements in it."""

    kind: str
    facts: dict[str, Any]
    layers: list[dict[str, Any]]
    holds: frozenset[str]
    tokens: list[int] = field(default_factory=list)

    @property
    def lacks(self) -> list[str]:
        """Elements that a continuation needs and that are not in the file."""
        return [e.name for e in ELEMENTS if e.name not in self.holds]


def read(path: Path) -> Saved:
    """The file at `path`, by its first bytes. Raises InputProblem when it is none of the three, or broken."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as problem:
        raise InputProblem(f"snapshot={path} cannot be read: {problem.strerror}.") from None
    try:
        if start[:4] == SLOT_MAGIC:
            return _slot(path)
        if start[:2] == b"PK":
            return _torch(path)
        if start[8:9] == b"{":
            return _mlx(path)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, struct.error, pickle.UnpicklingError) as problem:  # fmt: skip
        said = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise InputProblem(f"snapshot={path} cannot be read: {said}") from None
    raise InputProblem(
        f"snapshot={path} is no directory of ours, and none of: an mlx-lm prompt cache (.safetensors), a "
        "slot file of llama.cpp, a torch.save'd DynamicCache."
    )


def _mlx(path: Path) -> Saved:
    """Only the header is read: names, shapes, and mlx-lm's own metadata."""
    with path.open("rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        if size > min(HEADER_LIMIT, path.stat().st_size - 8):
            raise ValueError(f"its header claims {size} bytes")
        header = json.loads(file.read(size))
    said = header.pop("__metadata__", {})
    kinds = {int(k[2:]): v for k, v in said.items() if k.startswith("1.") and k[2:].isdigit()}
    if not kinds:
        raise ValueError("it is a safetensors file, but no prompt cache of mlx-lm")
    rows = []
    for layer, kind in sorted(kinds.items()):
        first = header.get(f"{layer}.0", {})
        rows.append({"layer": layer, "kind": kind, "shape": first.get("shape"), "dtype": first.get("dtype")})  # fmt: skip
    named = {k[2:]: v for k, v in said.items() if k.startswith("0.")}
    return Saved("mlx-lm prompt cache", {"metadata": named, "layers": len(rows)}, rows, frozenset({"kv_cache"}))  # fmt: skip


def _slot(path: Path) -> Saved:
    """Magic, version, then (from version 4 on) packed token data; keys and values are not decoded."""
    raw = path.read_bytes()
    version, count = struct.unpack_from("<II", raw, 4)
    offset = 12
    if not 1 <= version <= 64 or offset + 4 * count > len(raw):
        raise ValueError(f"version {version} with {count} tokens does not fit {len(raw)} bytes")
    words = list(struct.unpack_from(f"<{count}i", raw, offset))
    if version >= 4 and words[:2] == [-1, 1]:  # a header of its own, then how many tokens
        words = words[3 : 3 + words[2]]
    facts = {"version": version, "tokens": len(words), "bytes": len(raw)}
    return Saved("llama.cpp slot", facts, [], frozenset({"kv_cache", "token_buffer", "positions"}), words)  # fmt: skip


def _torch(path: Path) -> Saved:
    """Unpickled by torch with `weights_only` and an allow-list of the library's plain cache classes."""
    import torch
    from transformers import cache_utils

    allowed = [getattr(cache_utils, name) for name in CACHES if hasattr(cache_utils, name)]
    with torch.serialization.safe_globals(allowed):
        cache = torch.load(path, weights_only=True, map_location="cpu")
    if type(cache).__name__ != "DynamicCache":
        raise ValueError(f"it holds a {type(cache).__name__}, not a DynamicCache")
    rows = [
        {"layer": i, "kind": type(layer).__name__, "shape": list(layer.keys.shape),
         "dtype": str(layer.keys.dtype).removeprefix("torch.")}
        for i, layer in enumerate(cache.layers[:LAYERS_LIMIT])
    ]  # fmt: skip
    return Saved("DynamicCache, torch.save", {"layers": len(rows)}, rows, frozenset({"kv_cache"}))
