"""A `torch.save`d DynamicCache, read as data."""

from pathlib import Path
from typing import Any

from harness import foreign
from harness.engine.saved.base import LAYERS_LIMIT, Layers, Saved
from harness.snapshot.torch_file import Archive, Object, Stored

MODULE = "transformers.cache_utils"
WHOLE = "DynamicLayer"  # holds every token
CLASSES = {f"{MODULE} {name}" for name in ("DynamicCache", WHOLE, "DynamicSlidingWindowLayer")}


def read(path: Path) -> Saved:
    """The library's plain cache classes by name; a tensor is a view of the mapped file."""
    archive = Archive(foreign.mapped(path))
    cache = archive.described(CLASSES)
    if not isinstance(cache, Object) or cache.name != f"{MODULE} DynamicCache":
        raise ValueError("it holds no DynamicCache")
    layers = cache.state.get("layers")
    if not isinstance(layers, list) or not 0 < len(layers) <= LAYERS_LIMIT:
        raise ValueError("its cache holds no layers")
    rows, held = [], []
    for i, layer in enumerate(layers):
        if not isinstance(layer, Object):
            raise ValueError(f"layer {i} is none of the library's")
        key, value = (layer.state.get(part) for part in ("keys", "values"))
        if not isinstance(key, Stored) or not isinstance(value, Stored):
            raise ValueError(f"layer {i} holds no keys and values")
        kind = layer.name.partition(" ")[2]
        rows.append({"layer": i, "kind": kind, "shape": list(key.shape), "dtype": key.dtype})
        held.append((key, value))

    def pairs() -> Layers:
        if any(row["kind"] != WHOLE for row in rows):
            raise ValueError("a layer with a window does not hold every token")
        if any(len(part.shape) != 4 for pair in held for part in pair):
            raise ValueError("a layer's keys and values are no tensors of four dimensions")
        return [(archive.tensor(key), archive.tensor(value)) for key, value in held]

    facts: dict[str, Any] = {"layers": len(rows)}
    return Saved("DynamicCache, torch.save", facts, rows, frozenset({"kv_cache"}), [], pairs)
