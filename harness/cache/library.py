"""State to the library's own cache object and back: shared by dynamic, cloned and deepcopy."""

from collections.abc import Iterator
from typing import Any

import torch

from harness.cache.base import Decoder
from harness.errors import UnsupportedModel
from harness.snapshot.state import LayerState, State


def to_cache(loaded: Any, state: State) -> Any:
    """A DynamicCache holding `state`. Attention tensors are shared (the library replaces, never
    writes them); recurrent tensors are copied (the library writes them in place)."""
    from transformers import DynamicCache

    cache = DynamicCache(config=loaded.model.config)
    if len(cache.layers) != len(state.layers):
        raise UnsupportedModel(
            f"the state has {len(state.layers)} layers, this model's cache has {len(cache.layers)}. "
            "Load the model it was captured from."
        )
    for target, layer in zip(cache.layers, state.layers, strict=True):
        fill(target, layer)
    return cache


def fill(target: Any, layer: LayerState) -> None:
    """Put `layer` into a library cache layer: attention tensors shared, recurrent ones copied."""
    if layer.segments:
        key, value = layer.key, layer.value
        if getattr(target, "is_sliding", False):
            target.cumulative_length = layer.seen
        target.lazy_initialization(key, value)
        target.keys, target.values = key, value
    for name, tensor in layer.recurrent.items():
        part, number = name.rsplit("_", 1)
        _restore_recurrent(target, part, int(number), tensor)


def _restore_recurrent(target: Any, part: str, number: int, tensor: torch.Tensor) -> None:
    held = tensor.clone()
    if part == "conv_states":
        target.conv_kernel_size[number] = tensor.shape[-1]
        target.is_conv_states_initialized[number] = True
    else:
        target.is_recurrent_states_initialized[number] = True
    target.dtype, target.device = held.dtype, held.device
    getattr(target, part)[number] = held
    target.has_previous_state[number] = True


def cache_tensors(cache: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor a library cache holds now."""
    for index, layer in enumerate(cache.layers):
        if torch.is_tensor(getattr(layer, "keys", None)):
            yield f"{index}.keys", layer.keys
            yield f"{index}.values", layer.values
        for part in ("conv_states", "recurrent_states"):
            held = getattr(layer, part, None)
            if isinstance(held, dict):
                yield from ((f"{index}.{part}.{k}", t) for k, t in held.items() if t is not None)


class LibraryDecoder(Decoder):
    """The model's own forward over a library cache; a variant says which object it writes to."""

    def __init__(self, loaded: Any, state: State, settings: Any):
        super().__init__(loaded, state, settings)
        self.callers = to_cache(loaded, state)
        self.cache = self.working_copy(self.callers)
        if self.branches > 1:  # the library has no shared past: every branch gets a copy of its own
            self.cache.batch_repeat_interleave(self.branches)
            self.bytes_copied = sum(t.nbytes for _, t in cache_tensors(self.cache))

    def working_copy(self, cache: Any) -> Any:
        """The object that the forward may grow. The base hands over the caller's own."""
        return cache

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        before = {n: (t.data_ptr(), t.nbytes) for n, t in cache_tensors(self.cache)}
        logits = self.loaded.forward(ids, positions, self.mask(ids.shape[1]), self.cache)
        for name, tensor in cache_tensors(self.cache):
            pointer, nbytes = before.get(name, (tensor.data_ptr(), 0))
            if tensor.data_ptr() != pointer:  # the old contents were copied into new storage
                self.bytes_copied += nbytes
        return logits

    def handed_in(self) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
        return self.callers.get_seq_length(), cache_tensors(self.callers)

    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        layer = self.cache.layers[index]
        return layer.keys[:, :, -tokens:], layer.values[:, :, -tokens:]

    def recurrent(self, index: int) -> dict[str, torch.Tensor]:
        return recurrent_of(self.cache.layers[index])


def recurrent_of(layer: Any) -> dict[str, torch.Tensor]:
    """Copies of the recurrent tensors that a library cache layer holds now."""
    return {
        f"{part}_{i}": tensor.clone()
        for part in ("conv_states", "recurrent_states")
        for i, tensor in (getattr(layer, part, None) or {}).items()
        if tensor is not None
    }
