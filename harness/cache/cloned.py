"""`cache=cloned`: a second DynamicCache over the same tensors (Route A of the isolation problem)."""

import copy
from typing import Any

from harness.cache.library import LibraryDecoder


class Cloned(LibraryDecoder):
    """The caller is isolated, because the library replaces tensors instead of writing them; each
    step still concatenates, that is copies, the whole cache."""

    def working_copy(self, cache: Any) -> Any:
        clone = copy.copy(cache)
        clone.layers = [_shallow(layer) for layer in cache.layers]
        return clone


def _shallow(layer: Any) -> Any:
    """A layer object of its own over the same K/V; recurrent tensors, written in place, are copied."""
    clone = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            kept = {k: v.clone() if hasattr(v, "clone") else v for k, v in value.items()}
            setattr(clone, name, kept)
        elif isinstance(value, list):
            setattr(clone, name, list(value))
    return clone
