"""State to the library's own cache object and back: shared by dynamic, cloned and deepcopy."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.attention.parts import Part, Queries, by_head, visible
from harness.cache.base import Decoder
from harness.errors import UnsupportedModel
from harness.snapshot.state import LayerState, State

INDEXER = ("indexer_keys", "indexer_position_ids")


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
        if part in INDEXER:
            if part == INDEXER[0]:
                target.lazy_initialization_indexer(tensor)
            kept = tensor.transpose(0, 1) if part == INDEXER[1] else tensor
            setattr(target, part, kept)  # replaced as it grows, never written
            continue
        _restore_recurrent(target, part, int(number), tensor)


def _restore_recurrent(target: Any, part: str, number: int, tensor: torch.Tensor) -> None:
    copied = tensor.clone()
    if part == "conv_states":
        target.conv_kernel_size[number] = tensor.shape[-1]
        target.is_conv_states_initialized[number] = True
    else:
        target.is_recurrent_states_initialized[number] = True
    target.dtype, target.device = copied.dtype, copied.device
    getattr(target, part)[number] = copied
    target.has_previous_state[number] = True


def cache_tensors(cache: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor a library cache holds now."""
    for index, layer in enumerate(cache.layers):
        if torch.is_tensor(getattr(layer, "keys", None)):
            yield f"{index}.keys", layer.keys
            yield f"{index}.values", layer.values
        for part in INDEXER:
            if torch.is_tensor(tensor := getattr(layer, part, None)):
                yield f"{index}.{part}", tensor
        for part in ("conv_states", "recurrent_states"):
            states = getattr(layer, part, None)
            if isinstance(states, dict):
                yield from ((f"{index}.{part}.{k}", t) for k, t in states.items() if t is not None)


def held_positions(loaded: Any, state: State) -> dict[int, torch.Tensor]:
    """`[batch, 1 or kv_heads, kept]` positions of every layer of a pruned state. Raises UnsupportedModel where the
    library's attention cannot be told about them."""
    implementation = loaded.text_config._attn_implementation
    if implementation not in ("sdpa", "eager"):
        raise UnsupportedModel(
            f"a pruned state needs masks of its own, which model.attention={implementation} does "
            "not take. Use model.attention=sdpa."
        )
    kept = {
        la.index: (la.positions if la.per_head else la.positions[:, None]).to(loaded.device)
        for la in state.layers
        if la.segments
    }
    alibi = getattr(loaded.text_config, "alibi", False)
    told = "position_ids" in loaded._forward_names and not alibi
    gaps = any(bool((p[..., -1] - p[..., 0] + 1 != p.shape[2]).any()) for p in kept.values())
    following = state.next_position.to(loaded.device)[:, None]
    behind = any(bool((following != p[..., -1] + 1).any()) for p in kept.values())
    if not told and (gaps or behind or any(bool((p[..., 0] > 0).any()) for p in kept.values())):
        raise UnsupportedModel(
            f"'{loaded.text_config.model_type}' counts positions by place in the cache and cannot be "
            "told where the kept tokens were. Prune with prune.positions=reindexed."
        )
    return kept


@contextmanager
def layer_masks(loaded: Any, masks: dict[int, torch.Tensor | None]) -> Iterator[None]:
    """Give every attention module the mask of its own layer (bool, True is seen; None sees all).

    The library makes one mask per kind of layer, by place in the cache; after pruning each layer
    may hold other tokens, so each gets its own, through hooks that are removed again. Raises
    UnsupportedModel when a layer's attention never took its mask.
    """
    additive = loaded.text_config._attn_implementation == "eager"
    reached: set[int] = set()

    def swap(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        mask = masks[module.layer_idx]
        if mask is not None and additive:
            lowest = torch.finfo(loaded.dtype).min
            allowed = torch.zeros(mask.shape, dtype=loaded.dtype, device=mask.device)
            mask = allowed.masked_fill(~mask, lowest)
        reached.add(module.layer_idx)
        bound = inspect.signature(module.forward).bind_partial(*args, **kwargs)
        bound.arguments["attention_mask"] = mask
        return bound.args, bound.kwargs

    hooks = [
        module.register_forward_pre_hook(swap, with_kwargs=True)
        for module in loaded.model.modules()
        if getattr(module, "layer_idx", None) in masks
        and "attention_mask" in inspect.signature(module.forward).parameters
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if missed := set(masks) - reached:
        raise UnsupportedModel(
            f"the attention of layer {min(missed)} takes no mask from outside, so a pruned state "
            "cannot be continued here. Use cache=manual where it has this family."
        )


class LibraryDecoder(Decoder):
    """The model's own forward over a library cache; a variant says which object it writes to."""

    def __init__(self, loaded: Any, state: State, settings: Any):
        super().__init__(loaded, state, settings)
        if state.pruned and any(f"{INDEXER[0]}_0" in la.recurrent for la in state.layers):
            raise UnsupportedModel(
                "this model keeps an index over its keys, which does not shrink with them: a pruned "
                "state cannot be continued. Use prune=none."
            )
        self._held = held_positions(loaded, state) if state.pruned else None
        if self._held is not None and self.branches > 1:
            self._held = {k: t.repeat_interleave(self.branches, 0) for k, t in self._held.items()}
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
        if self._held is None:
            logits = self.loaded.forward(ids, positions, self.mask(ids.shape[1]), self.cache)
        else:
            with layer_masks(self.loaded, self._masks(positions)):
                logits = self.loaded.forward(ids, positions, None, self.cache)
        for name, tensor in cache_tensors(self.cache):
            pointer, nbytes = before.get(name, (tensor.data_ptr(), 0))
            if tensor.data_ptr() != pointer:  # the old contents were copied into new storage
                self.bytes_copied += nbytes
        return logits

    def crop(self, tokens: int) -> bool:
        """By the cache's own `crop`, where every layer keeps every token."""
        length = _length(self.cache)
        kept = [getattr(layer, "keys", None) for layer in getattr(self.cache, "layers", ())]
        growing = all(torch.is_tensor(keys) and keys.shape[2] == length for keys in kept)
        fed = sum(ids.shape[1] for ids in self.fed)
        if not kept or not growing or self._held is not None or fed <= tokens:
            return False
        try:
            self.cache.crop(-tokens)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return False
        self._uncounted(tokens)
        return True

    def _masks(self, positions: torch.Tensor) -> dict[int, torch.Tensor | None]:
        """Per layer who sees whom, `[batch, 1 or heads, new, past + new]` bool, by position. Advances
        `_held`."""
        assert self._held is not None
        queries, masks = Queries.of(positions), {}
        heads = self.loaded.text_config.num_attention_heads
        for layer in self.state.layers:
            if not layer.segments:
                continue
            # sliding layers let go of the oldest
            past = self.cache.layers[layer.index].keys.shape[2]
            kept = self._held[layer.index]
            fresh = positions[:, None].expand(-1, kept.shape[1], -1)
            keys = torch.cat([kept[:, :, kept.shape[2] - past :], fresh], dim=2)
            self._held[layer.index] = keys
            empty = keys.new_empty(0)
            seen = visible(Part.of(empty, empty, keys), queries, layer.window)
            if layer.kind == "chunked_attention" and layer.window:
                old, new = keys[:, :, None], positions[:, None, :, None]
                seen = (old // layer.window == new // layer.window) & (old <= new) & (old >= 0)
            masks[layer.index] = None if seen is None else by_head(seen, heads)
        return masks

    def handed_in(self) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
        return _length(self.callers), cache_tensors(self.callers)

    @property
    def kv_bytes(self) -> int:
        return sum(t.nbytes for _, t in cache_tensors(self.cache))

    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        layer = self.cache.layers[index]
        return layer.keys[:, :, -tokens:], layer.values[:, :, -tokens:]

    def recurrent(self, index: int) -> dict[str, torch.Tensor]:
        return recurrent_of(self.cache.layers[index])


def _length(cache: Any) -> int:
    """Tokens that the longest attention layer of a library cache was given; 0 without any."""
    attention = (la for la in cache.layers if torch.is_tensor(getattr(la, "keys", None)))
    return max((int(la.get_seq_length()) for la in attention), default=0)


class Replay(LibraryDecoder):
    """Feeds the last token of `state` again, over its stored keys and values: nothing is copied.

    before: `state` without its last token, as views. The model computes that token's keys and values
    anew, which `new_kv` hands out, but attends to the stored ones; so a step costs what any decode
    step costs, whatever the length of the past. moved: to copies of them, off the alignment that they have.
    """

    def __init__(
        self, loaded: Any, state: State, before: State, settings: Any, moved: bool = False
    ):
        super().__init__(loaded, before, settings)
        self._moved = moved
        self._fresh: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for target, layer in zip(self.cache.layers, state.layers, strict=True):
            target.update = self._stored(layer)

    def _stored(self, layer: LayerState) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
        past = layer.key, layer.value

        def update(key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> Any:
            self._fresh[layer.index] = key, value
            return tuple(map(_misaligned, past)) if self._moved else past

        return update

    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._fresh[index]


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of `tensor` that begins one element past where an allocator puts one; on a device 16 bytes, the
    least that its kernels read from, and more than a tensor from disk is off there: it is copied to a new one."""
    off = 1 if tensor.device.type == "cpu" else 16 // tensor.element_size()
    return tensor.new_empty(tensor.numel() + off)[off:].view(tensor.shape).copy_(tensor)


def recurrent_of(layer: Any) -> dict[str, torch.Tensor]:
    """Copies of the recurrent tensors (and of an index over the keys) that a library cache layer
    holds now."""
    index = {
        f"{part}_0": (tensor.transpose(0, 1) if part == INDEXER[1] else tensor).clone()
        for part in INDEXER
        if torch.is_tensor(tensor := getattr(layer, part, None))
    }
    return index | {
        f"{part}_{i}": tensor.clone()
        for part in ("conv_states", "recurrent_states")
        for i, tensor in (getattr(layer, part, None) or {}).items()
        if tensor is not None
    }
