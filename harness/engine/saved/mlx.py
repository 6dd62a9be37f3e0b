"""An mlx-lm prompt cache: a safetensors file whose metadata says of which classes its layers are."""

import json
import struct
from pathlib import Path
from typing import Any

from harness.engine.saved.base import Saved

HEADER_LIMIT = 2**24  # bytes of a safetensors header that are read
PLAIN = "KVCache"  # holds every token, oldest first


def read(path: Path) -> Saved:
    """Only the header is read at first: names, shapes, and mlx-lm's own metadata."""
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
        shape, dtype = first.get("shape"), first.get("dtype")
        rows.append({"layer": layer, "kind": kind, "shape": shape, "dtype": dtype})
    named = {k[2:]: v for k, v in said.items() if k.startswith("0.")}
    facts = {"metadata": named, "layers": len(rows)}

    def pairs() -> list:
        from safetensors.torch import load_file

        if other := sorted({str(k) for k in kinds.values()} - {PLAIN}):
            raise ValueError(f"a {other[0]} does not hold every token in order, in plain numbers")
        tensors = load_file(path)
        return [tuple(_used(tensors, layer, part) for part in (0, 1)) for layer in sorted(kinds)]

    return Saved("mlx-lm prompt cache", facts, rows, frozenset({"kv_cache"}), [], pairs)


def _used(tensors: dict, layer: int, part: int) -> Any:
    """Keys (0) or values (1) `[batch, kv_heads, tokens, head_dim]` without the room to grow that follows
    them; how many tokens there are stands beside them, in files of newer versions."""
    tensor, count = tensors[f"{layer}.{part}"], tensors.get(f"{layer}.2")
    used = tensor.shape[2] if count is None else int(count)
    if not 0 < used <= tensor.shape[2]:
        raise ValueError(f"layer {layer} says that it holds {used} tokens of {tensor.shape[2]}")
    return tensor[:, :, :used]
