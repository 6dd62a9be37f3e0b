"""`cache=manual`: our own forward over a past that is only read, plus a private tail.

One short file per family. A family's `forward` takes the model, the new ids and their positions,
and asks `memory.attend(layer, q, k, v)` for attention; it never sees the cache itself.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from harness.cache.attention import Part, Queries, split_attention
from harness.cache.base import Decoder
from harness.cache.tail import Tail
from harness.errors import UnsupportedModel
from harness.snapshot.state import FULL, SLIDING, State

# transformers model_type -> the file of its family in this folder
FAMILIES = {"llama": "llama"}


class Memory:
    """The read-only past and the growing tails of every layer.

    `attend` is the only door: it appends the new K/V to the layer's tail and returns attention over
    past and tail. The State's tensors are only read.
    """

    def __init__(self, state: State):
        self._past = [
            [Part.of(s.key, s.value, s.positions) for s in layer.segments] for layer in state.layers
        ]
        self._windows = [layer.window for layer in state.layers]
        self.tails = [Tail() for _ in state.layers]
        self._new: Queries | None = None
        self._positions: torch.Tensor | None = None  # [batch, tail] of all tails
        self._first = 0

    def begin(self, positions: torch.Tensor) -> None:
        """Announce the `[batch, new]` positions of the tokens that are about to be processed."""
        self._new = Queries.of(positions)
        if self._positions is None:
            self._positions, self._first = positions, self._new.first
        else:
            self._positions = torch.cat([self._positions, positions], dim=1)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Attention output `[batch, heads, new, head_dim]` for `query` of the same shape.

        key, value: `[batch, kv_heads, new, head_dim]` of the new tokens, kept in the tail.
        """
        tail = self.tails[layer]
        tail.append(key, value)
        assert self._new is not None and self._positions is not None
        fresh = Part(tail.key, tail.value, self._positions, self._first, self._new.last)
        parts = [*self._past[layer], fresh]
        return split_attention(query, parts, self._new, scale, self._windows[layer], softcap)


class Manual(Decoder):
    """Reads the State, writes only its own tail. Raises UnsupportedModel for other families."""

    def __init__(self, loaded: Any, state: State, settings: Any):
        super().__init__(loaded, state, settings)
        kind = loaded.text_config.model_type
        if kind not in FAMILIES:
            raise UnsupportedModel(
                f"cache=manual has no forward for '{kind}' models (it has: {', '.join(FAMILIES)}). "
                "Use cache=cloned, which serves every model."
            )
        odd = {layer.kind for layer in state.layers} - {FULL, SLIDING}
        if odd:
            raise UnsupportedModel(
                f"cache=manual cannot serve layers of kind {', '.join(sorted(odd))}. Use cache=cloned."
            )
        self._forward = import_module(f"{__name__}.{FAMILIES[kind]}").forward
        self._memory = Memory(state)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self._memory.begin(positions)
            logits = self._forward(self.loaded.model, ids, positions, self._memory)
        self.bytes_copied = sum(tail.bytes_copied for tail in self._memory.tails)
        return logits

    def handed_in(self) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
        tensors = (t for layer in self.state.layers for t in layer.tensors())
        return max(layer.seen for layer in self.state.layers), tensors

    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        tail = self._memory.tails[index]
        return tail.key, tail.value


DECODER = Manual
