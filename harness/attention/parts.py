"""What an attention reads, and what of it each query may see. Masks live in position space: a key may be
seen when its position is not negative (padding), not after the query, and inside the window."""

from dataclasses import dataclass, replace

import torch

from harness.snapshot.codes import Codes, dense


@dataclass(frozen=True)
class Part:
    """Keys and values to attend to.

    key, value: `[batch, kv_heads, tokens, head_dim]`, or the Codes that stand for it; positions:
    `[batch, tokens]` int64, increasing, or `[batch, kv_heads, tokens]` where heads hold different
    tokens.
    first, last: smallest and largest position, read once, so that no mask is built needlessly.
    uniform: all rows and heads have the same positions, so that a window is a slice, not a mask.
    seen: what `visible` gives, where it was made before.
    """

    key: torch.Tensor | Codes
    value: torch.Tensor | Codes
    positions: torch.Tensor
    first: int
    last: int
    uniform: bool = False
    seen: torch.Tensor | None = None

    @classmethod
    def of(
        cls, key: torch.Tensor | Codes, value: torch.Tensor | Codes, positions: torch.Tensor
    ) -> "Part":
        """Read the bounds of `positions` once (a device synchronization on CUDA)."""
        if not positions.numel():
            return cls(key, value, positions, 0, -1, True)
        alone = positions.numel() == positions.shape[-1]
        uniform = alone or bool((positions == positions[(0,) * (positions.dim() - 1)]).all())
        first, last = int(positions[..., 0].min()), int(positions[..., -1].max())
        return cls(key, value, positions, first, last, uniform)

    @property
    def tokens(self) -> int:
        return self.key.shape[2]

    @property
    def coded(self) -> bool:
        """Whether keys and values are kept as codes."""
        return isinstance(self.key, Codes)

    @property
    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Key and value of a part without codes."""
        assert isinstance(self.key, torch.Tensor) and isinstance(self.value, torch.Tensor)
        return self.key, self.value

    def dense(self) -> "Part":
        """The same with the numbers that its codes stand for; itself where it has none."""
        return replace(self, key=dense(self.key), value=dense(self.value)) if self.coded else self

    @property
    def row(self) -> torch.Tensor:
        """`[tokens]` positions of the first row (and head): everyone's, in a uniform part."""
        return self.positions[(0,) * (self.positions.dim() - 1)]

    def cut(self, start: int, stop: int) -> "Part":
        """Tokens `start:stop`, as views. The bounds stay valid, if wider than they need to be."""
        if start == 0 and stop == self.tokens:
            return self
        first, last = self.first, self.last
        if self.uniform and start < stop:
            first, last = int(self.row[start]), int(self.row[stop - 1])
        return replace(
            self,
            key=self.key[:, :, start:stop],
            value=self.value[:, :, start:stop],
            positions=self.positions[..., start:stop],
            first=first,
            last=last,
            seen=None if self.seen is None else self.seen[..., start:stop],
        )


@dataclass(frozen=True)
class Queries:
    """Positions of the new tokens, `[batch, new]` int64, with their bounds."""

    positions: torch.Tensor
    first: int
    last: int

    @classmethod
    def of(cls, positions: torch.Tensor) -> "Queries":
        return cls(positions, int(positions[:, 0].min()), int(positions[:, -1].max()))


def visible(part: Part, queries: Queries, window: int | None) -> torch.Tensor | None:
    """`[batch, 1 or kv_heads, new, tokens]` bool (batch of the queries), or None when every query sees
    every key."""
    if part.seen is not None:
        return part.seen
    causal = part.last > queries.first
    padded = part.first < 0
    windowed = window is not None and part.first <= queries.last - window
    if not (causal or padded or windowed):
        return None
    branches = len(queries.positions) // len(part.positions)
    positions = part.positions if part.positions.dim() == 3 else part.positions[:, None]
    key = positions.repeat_interleave(branches, 0)[:, :, None]
    query = queries.positions[:, None, :, None]
    seen = key >= 0
    if causal:
        seen = seen & (key <= query)
    if window is not None and windowed:
        seen = seen & (key > query - window)
    return seen.expand(-1, -1, query.shape[2], -1)


def by_head(seen: torch.Tensor, heads: int) -> torch.Tensor:
    """What `visible` gives as `[batch, 1 or heads, new, tokens]`, for all query heads."""
    kv_heads = seen.shape[1]
    return seen if kv_heads in (1, heads) else seen.repeat_interleave(heads // kv_heads, 1)


def seen_of(parts: list[Part], queries: Queries, window: int | None) -> list[tuple[int, Part]]:
    """What of each part some query may see, by position, with its place among the tokens of all."""
    in_sight, start = [], 0
    for part in parts:
        if part.tokens and not out_of_sight(part, queries, window):
            low, high = in_window(part, queries, window)
            in_sight.append((start + low, part.cut(low, high)))
        start += part.tokens
    return in_sight


def in_window(part: Part, queries: Queries, window: int | None) -> tuple[int, int]:
    """Token range of the part that some query may see through the window; exact for uniform rows."""
    oldest = None if window is None else queries.first - window + 1
    if oldest is None or not part.uniform or part.first >= oldest:
        return 0, part.tokens
    if part.last - part.first + 1 == part.tokens:  # no gaps
        return oldest - part.first, part.tokens
    first = torch.searchsorted(part.row.contiguous(), oldest)
    return int(first), part.tokens


def out_of_sight(part: Part, queries: Queries, window: int | None) -> bool:
    """Whether no query can see any key of the part: too old for the window, or all in the future."""
    too_old = window is not None and part.last <= queries.first - window
    return too_old or part.first > queries.last
