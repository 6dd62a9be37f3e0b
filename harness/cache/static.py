"""`cache=static`: the library's pre-allocated cache, written in place.

`cache.pad_prime=N` first feeds N pad tokens, as some scripts do to warm a static cache up, and
leaves them where attention can see them: a variant for experiments, not for use. `cache.compile=true`
compiles the model's forward, which the fixed shapes allow: the library's own fastest decoding.
"""

import copy
from typing import Any

import torch

from harness.attention.parts import Part, Queries, by_head, visible
from harness.cache.library import LibraryDecoder, cache_tensors, fill
from harness.errors import UnsupportedModel
from harness.snapshot.state import LayerState, State

ROOM = 256  # tokens of room beyond the past


class Static(LibraryDecoder):
    """Copies the whole state into buffers with room for more, once; each step then writes in place.
    Raises UnsupportedModel for pruned states with sliding layers, whose buffers take a place for a
    position, for branches, and when the room is used up."""

    def __init__(self, loaded: Any, state: State, settings: Any):
        if state.pruned and (settings.pad_prime or any(la.window for la in state.layers)):
            raise UnsupportedModel(
                "cache=static holds a pruned state only where every layer looks back on everything, "
                "and without cache.pad_prime. Use cache=manual, view or cloned."
            )
        if settings.branches > 1:
            raise UnsupportedModel(
                "cache=static has no branches: the library cannot repeat its buffers. Use "
                "cache=manual or view, which share one past."
            )
        self._room = ROOM
        super().__init__(loaded, state, settings)
        if settings.compile:
            self.loaded = compiled(loaded)

    def working_copy(self, cache: Any) -> Any:
        primed = self.settings.pad_prime
        self._capacity = self.past.tokens + primed + self._room
        longest = getattr(self.loaded.text_config, "max_seq_len", None)  # MPT's biases end there
        if longest is not None and longest < self._capacity:
            self._room -= self._capacity - longest
            self._capacity = longest
        static = self._empty()
        if primed:
            self._prime(static, primed)
        for target, source, layer in zip(
            static.layers, cache.layers, self.past.layers, strict=True
        ):
            self._place(target, source, layer, primed)
        self.bytes_copied += sum(t.nbytes for _, t in cache_tensors(static))
        return static

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self._taken + ids.shape[1] > self._room:
            raise UnsupportedModel(
                f"cache=static has room for {self._room} new tokens, {self._taken} are taken. Commit and "
                "go on from there, or use a cache that grows."
            )
        logits = super().forward(ids, positions)
        for layer in self.cache.layers:  # a full sliding one is rolled: written whole
            if getattr(layer, "is_sliding", False) and _length(layer) > layer.max_cache_len:
                self.bytes_copied += layer.keys.nbytes + layer.values.nbytes
        return logits

    @property
    def compiled(self) -> bool:
        return bool(self.settings.compile)

    @property
    def _taken(self) -> int:
        return sum(ids.shape[1] for ids in self.fed)

    def mask(self, new: int) -> torch.Tensor | None:
        """As wide as the buffer for ALiBi, whose biases the library makes from the mask: as many as
        there are keys, and the unused rest of the buffer is keys as well."""
        mask, primed, past = super().mask(new), self.settings.pad_prime, self.state.attention_mask
        config = self.loaded.text_config
        alibi = getattr(config, "alibi", config.model_type == "bloom")
        if mask is None and not alibi:
            return None
        if mask is None:
            mask = past.new_ones(len(past), self.state.tokens + self._taken + new)
        if primed:
            mask = torch.cat([mask.new_ones(len(mask), primed), mask], dim=1)
        rest = self._capacity - mask.shape[1] if alibi else 0
        return torch.nn.functional.pad(mask, (0, rest))

    def _masks(self, positions: torch.Tensor) -> dict[int, torch.Tensor | None]:
        """Per layer of a pruned state `[batch, heads, new, capacity]` bool, by position; the unused rest
        of the buffer is never seen. Advances `_held`."""
        assert self._held is not None
        queries = Queries.of(positions)
        masks: dict[int, torch.Tensor | None] = {}
        for index, past in self._held.items():
            fresh = positions[:, None].expand(-1, past.shape[1], -1)
            keys = self._held[index] = torch.cat([past, fresh], dim=2)
            empty = keys.new_empty(0)
            seen = visible(Part.of(empty, empty, keys), queries, None)
            capacity = self.cache.layers[index].keys.shape[2]
            shape = (len(positions), past.shape[1], positions.shape[1], capacity)
            mask = torch.zeros(shape, dtype=torch.bool, device=keys.device)
            mask[..., : keys.shape[2]] = True if seen is None else seen
            masks[index] = by_head(mask, self.loaded.text_config.num_attention_heads)
        return masks

    def _empty(self) -> Any:
        from transformers import StaticCache

        try:
            return StaticCache(config=self.loaded.model.config, max_cache_len=self._capacity)
        except (KeyError, TypeError, ValueError) as problem:
            raise UnsupportedModel(
                f"the library has no static cache for '{self.loaded.text_config.model_type}' "
                f"({problem}). Use cache=cloned."
            ) from problem

    def _prime(self, static: Any, pads: int) -> None:
        pad = self.loaded.text_config.pad_token_id
        ids = self.past.token_ids.new_full((self.past.batch, pads), 0 if pad is None else int(pad))
        ids = ids.to(self.loaded.device)
        positions = torch.arange(pads, device=ids.device).expand_as(ids)
        self.loaded.forward(ids, positions, None, static, keep=1)

    def _place(self, target: Any, source: Any, layer: LayerState, primed: int) -> None:
        if layer.recurrent:
            if layer.segments or not hasattr(target, "conv_states"):
                raise UnsupportedModel(
                    "cache=static cannot hold layers that are both attention and recurrence. Use "
                    "cache=cloned."
                )
            fill(target, layer)
        elif layer.segments:
            key, value = source.keys, source.values
            if target.is_sliding and layer.seen >= target.max_cache_len:
                if not target.is_initialized:
                    target.lazy_initialization(key, value)
                kept = min(key.shape[2], target.max_cache_len)
                target.keys[:, :, -kept:] = key[:, :, -kept:]
                target.values[:, :, -kept:] = value[:, :, -kept:]
                target.cumulative_length_int = primed + layer.seen
            else:
                target.update(key, value)

    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        layer = self.cache.layers[index]
        stop = min(_length(layer), layer.keys.shape[2])
        start = max(stop - tokens, 0)
        return layer.keys[:, :, start:stop].clone(), layer.values[:, :, start:stop].clone()


def compiled(loaded: Any) -> Any:
    """`loaded` with its model's forward compiled: on CUDA recorded as a graph as well. The weights are
    the same objects. Compiling happens at the first calls."""
    fast = copy.copy(loaded)
    mode = "reduce-overhead" if loaded.device.type == "cuda" else None
    fast.model = torch.compile(loaded.model, mode=mode)
    return fast


def _length(layer: Any) -> int:
    return int(getattr(layer, "cumulative_length_int", None) or layer.cumulative_length)
