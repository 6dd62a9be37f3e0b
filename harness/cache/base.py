"""What every cache implementation promises: a decoder that continues from a State.

The State is only read. A variant supplies `forward`, what the caller handed in, and its new K/V.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.snapshot.digest import digest_named
from harness.snapshot.state import LayerState, Segment, State


@dataclass(frozen=True)
class Fingerprint:
    """An object's length, the identity and version of its tensors, and (on request) their digest.

    Under `no_grad` a tensor's version counter rises with every in-place write, so identity and
    version together prove at no cost that nothing was written; the digest proves it byte by byte.
    """

    length: int
    identity: tuple[tuple[int, int], ...]
    digest: str | None

    @classmethod
    def of(cls, length: int, tensors: Iterable[tuple[str, torch.Tensor]], digest: bool) -> "Fingerprint":  # fmt: skip
        named = list(tensors)
        return cls(
            length,
            tuple((t.data_ptr(), t._version) for _, t in named),
            digest_named(named) if digest else None,
        )


class Decoder(ABC):
    """Continues from `state` one or more tokens at a time.

    loaded: the model; state: read only; settings: a CacheConfig.
    Construction raises UnsupportedModel when this implementation cannot serve the model or state.
    """

    def __init__(self, loaded: Any, state: State, settings: Any):
        self.loaded, self.state, self.settings = loaded, state, settings
        self.next_position = state.next_position.to(loaded.device)
        self.fed: list[torch.Tensor] = []
        self.bytes_copied = 0
        self._logits = state.logits

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed `ids` `[batch, new]`; return logits `[batch, new, vocab]`. Grows the private tail."""
        ids = ids.to(self.loaded.device)
        new = torch.arange(ids.shape[1], device=ids.device)
        logits = self.forward(ids, self.next_position[:, None] + new)
        self.next_position = self.next_position + ids.shape[1]
        self.fed.append(ids)
        self._logits = logits[:, -1]
        return logits

    @abstractmethod
    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits `[batch, new, vocab]` of `ids` at absolute `positions`, both `[batch, new]`."""

    @abstractmethod
    def handed_in(self) -> tuple[int, Iterable[tuple[str, torch.Tensor]]]:
        """Length and tensors of the object the caller passed, as they are now."""

    @abstractmethod
    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Key and value `[batch, kv_heads, <= tokens, head_dim]` that layer `index` added."""

    def recurrent(self, index: int) -> dict[str, torch.Tensor]:
        """Recurrent tensors of layer `index` as they are now (linear-attention layers only)."""
        return {}

    def fingerprint(self, digest: bool = False) -> Fingerprint:
        """Fingerprint of what the caller handed in."""
        length, tensors = self.handed_in()
        return Fingerprint.of(length, tensors, digest)

    def mask(self, new: int) -> torch.Tensor | None:
        """`[batch, past + fed + new]` for the library's forward, or None when nothing is padded."""
        past = self.state.attention_mask
        if bool(past.all()):
            return None
        ones = past.new_ones(past.shape[0], sum(f.shape[1] for f in self.fed) + new)
        return torch.cat([past, ones], dim=1)

    def commit(self) -> State:
        """A new State: the old segments, untouched, and one segment of everything fed so far."""
        if not self.fed:
            return self.state
        ids = torch.cat(self.fed, dim=1)
        count = ids.shape[1]
        positions = self.state.next_position.to(ids.device)[:, None] + torch.arange(
            count, device=ids.device
        )
        layers = tuple(self._committed(layer, positions) for layer in self.state.layers)
        mask = torch.cat([self.state.attention_mask.to(ids.device), torch.ones_like(ids)], dim=1)
        state = replace(
            self.state,
            token_ids=torch.cat([self.state.token_ids.to(ids.device), ids], dim=1),
            attention_mask=mask,
            next_position=self.next_position,
            logits=self._logits.clone(),
        )
        return state.with_layers(layers)

    def _committed(self, layer: LayerState, positions: torch.Tensor) -> LayerState:
        seen = layer.seen + positions.shape[1] if layer.seen else 0
        recurrent = self.recurrent(layer.index) or layer.recurrent
        added = self.new_kv(layer.index, positions.shape[1]) if layer.segments else None
        if added is None:
            return replace(layer, seen=seen, recurrent=recurrent, received=None)
        key, value = added
        fresh = Segment(key, value, positions[:, positions.shape[1] - key.shape[2] :].contiguous())
        segments = (*layer.segments, fresh)
        if layer.window is not None:
            segments = _last(segments, layer.window - 1)
        return replace(layer, segments=segments, seen=seen, recurrent=recurrent, received=None)


def _last(segments: tuple[Segment, ...], tokens: int) -> tuple[Segment, ...]:
    """The last `tokens` tokens, as views."""
    drop = sum(s.tokens for s in segments) - tokens
    kept = []
    for segment in segments:
        cut = min(max(drop, 0), segment.tokens)
        drop -= cut
        if cut < segment.tokens:
            whole = cut == 0
            kept.append(
                segment
                if whole
                else Segment(
                    segment.key[:, :, cut:], segment.value[:, :, cut:], segment.positions[:, cut:]
                )
            )
    return tuple(kept)
