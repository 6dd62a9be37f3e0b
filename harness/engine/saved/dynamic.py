"""A `torch.save`d DynamicCache."""

from pathlib import Path

from harness.engine.saved.base import LAYERS_LIMIT, Saved

CLASSES = ("DynamicCache", "DynamicLayer", "DynamicSlidingWindowLayer")  # nothing else is unpickled


def read(path: Path) -> Saved:
    """Unpickled by torch with `weights_only` and an allow-list of the library's plain cache classes."""
    import torch
    from transformers import cache_utils

    allowed = [getattr(cache_utils, name) for name in CLASSES if hasattr(cache_utils, name)]
    with torch.serialization.safe_globals(allowed):
        cache = torch.load(path, weights_only=True, map_location="cpu")
    if type(cache).__name__ != "DynamicCache":
        raise ValueError(f"it holds a {type(cache).__name__}, not a DynamicCache")
    layers = cache.layers[:LAYERS_LIMIT]
    rows = [
        {
            "layer": i,
            "kind": type(layer).__name__,
            "shape": list(layer.keys.shape),
            "dtype": str(layer.keys.dtype).removeprefix("torch."),
        }
        for i, layer in enumerate(layers)
    ]

    def pairs() -> list:
        if any(row["kind"] != "DynamicLayer" for row in rows):
            raise ValueError("a layer with a window does not hold every token")
        if any(not torch.is_tensor(t) or t.dim() != 4 for x in layers for t in (x.keys, x.values)):
            raise ValueError("a layer's keys and values are no tensors of four dimensions")
        return [(layer.keys, layer.values) for layer in layers]

    holds = frozenset({"kv_cache"})
    return Saved("DynamicCache, torch.save", {"layers": len(rows)}, rows, holds, [], pairs)
