"""The read-only past and the growing tails of every layer: what `manual` and `view` attend to."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from harness.attention.parts import Part, Queries, seen_of
from harness.attention.split import split_attention
from harness.cache.tail import Tail
from harness.snapshot.codes import Codes
from harness.snapshot.state import Segment, State

FIRST_ROOM = 64  # tokens that the tails of all branches together have room for at first


class Memory:
    """Opens a State for reading: no key and no value is copied, whatever its size. windows: what each
    layer's attention looks back on, where that is known better than from the State.

    Every step: `begin` with the new positions, then per layer `append` and `attend`. Only the tails
    grow. With branches, the tails have `batch * branches` rows and the past still has `batch`.
    """

    def __init__(
        self, state: State, windows: Sequence[int | None] | None = None, branches: int = 1
    ):
        bounds: dict[int, tuple[int, int, bool]] = {}  # layers share their positions, as a rule
        self.past = [[_opened(s, bounds) for s in layer.segments] for layer in state.layers]
        self.windows = windows or [layer.window for layer in state.layers]
        room = max(FIRST_ROOM // branches, 8)
        self.tails = [Tail(room) for _ in state.layers]
        self.queries: Queries | None = None
        self.prepared: Any = None  # what whoever steps over this past looked up once for all steps
        self.positions: torch.Tensor | None = None  # [rows, fed], shared by all tails
        self._bounds = (0, 0, False)

    @property
    def bytes_copied(self) -> int:
        """What growing the tails moved so far; the past is never moved."""
        return sum(tail.bytes_copied for tail in self.tails)

    def begin(self, positions: torch.Tensor) -> None:
        """Announce the `[rows, new]` positions of the tokens that are about to be processed."""
        self.queries = Queries.of(positions)
        places = self.note(positions)
        whole = Part.of(places[:, None], places[:, None], places)
        self._bounds = (whole.first, whole.last, whole.uniform)

    def note(self, positions: torch.Tensor) -> torch.Tensor:
        """Remember the `[rows, new]` positions of tokens that join the tails; returns all so far."""
        known = self.positions
        self.positions = positions if known is None else torch.cat([known, positions], dim=1)
        return self.positions

    def append(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keep `[rows, kv_heads, new, head_dim]` of the new tokens in the layer's tail."""
        self.tails[layer].append(key, value)

    def slot(
        self, layer: int, rows: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for one more token of each row in the layer's tail, which counts as kept from now on:
        where its key and its value go, `[rows, kv_heads, head_dim]`, views that lie alike."""
        return self.tails[layer].slot(rows, kv_heads, head_dim, dtype)

    def unmasked(self) -> bool:
        """Whether all rows are at one position and nothing is padded, so that the announced tokens
        see all that their window, a slice where there is one, lets them see."""
        assert self.queries is not None
        at, (first, last, uniform) = self.queries.first, self._extent
        return uniform and self._bounds[2] and first >= 0 and last < at == self.queries.last

    @cached_property
    def _extent(self) -> tuple[int, int, bool]:
        parts = [part for parts in self.past for part in parts if part.tokens]
        return (
            min((part.first for part in parts), default=0),
            max((part.last for part in parts), default=-1),
            all(
                part.uniform
                for parts, window in zip(self.past, self.windows, strict=True)
                for part in parts
                if window is not None
            ),
        )

    @cached_property
    def stored(self) -> list[torch.Tensor | Codes]:
        """Every key and value of the past, as it is kept."""
        return [t for parts in self.past for part in parts for t in (part.key, part.value)]

    def mark(self) -> tuple[Any, ...]:
        """Where the tails end now, for `rewind`."""
        return self.positions, self.queries, self._bounds, [tail.length for tail in self.tails]

    def rewind(self, mark: tuple[Any, ...]) -> None:
        """Forget what came after `mark`: a step that failed half-way."""
        self.positions, self.queries, self._bounds, lengths = mark
        for tail, length in zip(self.tails, lengths, strict=True):
            tail.length = length

    def in_sight(self, layer: int) -> list[Part]:
        """What of `parts` the announced tokens may see through the layer's window."""
        assert self.queries is not None
        in_sight = seen_of(self.parts(layer), self.queries, self.windows[layer])
        return [part for _, part in in_sight]

    def parts(self, layer: int) -> list[Part]:
        """Past segments and tail of a layer, in order of position."""
        tail = self.tails[layer]
        if not tail.length:
            return self.past[layer]
        assert self.positions is not None
        fresh = Part(tail.key, tail.value, self.positions[:, -tail.length :], *self._bounds)
        return [*self.past[layer], fresh]

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        scale: float,
        softcap: float | None = None,
        bias: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
        windowed: bool = True,
    ) -> torch.Tensor:
        """Attention output `[rows, heads, new, value_dim]` of `query` `[rows, heads, new, head_dim]`
        over the layer's past and tail. windowed: apply the layer's window. The
        rest as in `split_attention`."""
        assert self.queries is not None
        window = self.windows[layer] if windowed else None
        return split_attention(
            query, self.parts(layer), self.queries, scale, window, softcap, bias, sinks
        )


def _opened(segment: Segment, bounds: dict[int, tuple[int, int, bool]]) -> Part:
    """The segment as a Part; what its positions span is read once for all that have the same."""
    known = id(segment.positions)
    if known not in bounds:
        part = Part.of(segment.key, segment.value, segment.positions)
        bounds[known] = (part.first, part.last, part.uniform)
        return part
    return Part(segment.key, segment.value, segment.positions, *bounds[known])
