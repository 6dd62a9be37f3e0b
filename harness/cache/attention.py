"""Split attention: attend to each part of the keys separately, then merge by softmax mass.

A part is only read. The query heads that share one KV head are folded into the query axis, so no
key or value is repeated, concatenated or copied. Masks live in position space: a key may be seen
when its position is not negative (padding), not after the query, and inside the window.
Each part reports its softmax mass as (maximum score, sum of exponentials): their product form
exp(max) * sum is the exponential of the log-sum-exp, but a sharp attention's log-sum-exp of 50 has
no float32 digits left below 2e-6, which the pair keeps.
Sources: FlashAttention (log-sum-exp merge), the isolation document (read-only forward).
"""

from dataclasses import dataclass
from math import inf

import torch


@dataclass(frozen=True)
class Part:
    """Keys and values to attend to.

    key, value: `[batch, kv_heads, tokens, head_dim]`; positions: `[batch, tokens]` int64.
    first, last: smallest and largest position, read once, so that no mask is built needlessly.
    """

    key: torch.Tensor
    value: torch.Tensor
    positions: torch.Tensor
    first: int
    last: int

    @classmethod
    def of(cls, key: torch.Tensor, value: torch.Tensor, positions: torch.Tensor) -> "Part":
        """Read the bounds of `positions` once (a device synchronization on CUDA)."""
        if not positions.numel():
            return cls(key, value, positions, 0, -1)
        return cls(key, value, positions, int(positions.min()), int(positions.max()))


@dataclass(frozen=True)
class Queries:
    """Positions of the new tokens, `[batch, new]` int64, with their bounds."""

    positions: torch.Tensor
    first: int
    last: int

    @classmethod
    def of(cls, positions: torch.Tensor) -> "Queries":
        return cls(positions, int(positions.min()), int(positions.max()))


def split_attention(
    query: torch.Tensor,
    parts: list[Part],
    queries: Queries,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention of `query` `[batch, heads, new, head_dim]` over all `parts` together.

    scale multiplies the scores; window: keys at `position <= query - window` are unseen;
    softcap: `cap * tanh(score / cap)`. Returns `[batch, heads, new, value_dim]` in query's dtype.
    Mutates nothing. A query that may see no key at all gets zeros.
    """
    batch, heads, new, _ = query.shape
    results = [
        attend(query, part, queries, scale, window, softcap)
        for part in parts
        if part.key.shape[2] and not _out_of_sight(part, queries, window)
    ]
    if not results:
        return query.new_zeros(batch, heads, new, parts[0].value.shape[-1])
    return merge(results).to(query.dtype)


def attend(
    query: torch.Tensor,
    part: Part,
    queries: Queries,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One part: output `[batch, heads, new, value_dim]`, maximum score and sum of exponentials,
    each `[batch, heads, new]`, all at least float32. Rows that see nothing: 0, -inf, 0."""
    batch, heads, new, head_dim = query.shape
    kv_heads, tokens = part.key.shape[1], part.key.shape[2]
    work = torch.promote_types(query.dtype, torch.float32)
    folded = query.reshape(batch, kv_heads, (heads // kv_heads) * new, head_dim)
    scores = (folded.to(work) @ part.key.to(work).transpose(-1, -2)) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.view(batch, heads, new, tokens)
    seen = visible(part, queries, window)
    if seen is not None:
        scores = scores.masked_fill(~seen[:, None], -inf)
    top = scores.amax(dim=-1)
    weights = torch.exp(scores - torch.where(top == -inf, 0.0, top)[..., None])
    mass = weights.sum(dim=-1)
    out = weights.view(batch, kv_heads, -1, tokens) @ part.value.to(work)
    out = out.view(batch, heads, new, -1) / torch.where(mass == 0, 1.0, mass)[..., None]
    return out, top, mass


def merge(results: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Combine `(output, maximum, sum)` triples into the attention over their union."""
    if len(results) == 1:
        return results[0][0]
    top = torch.stack([r[1] for r in results]).amax(dim=0)
    top = torch.where(top == -inf, 0.0, top)
    masses = [mass * torch.exp(peak - top) for _, peak, mass in results]
    total = sum(masses)
    mixed = sum(m[..., None] * out for m, (out, _, _) in zip(masses, results, strict=True))
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


def visible(part: Part, queries: Queries, window: int | None) -> torch.Tensor | None:
    """`[batch, new, tokens]` bool, or None when every query sees every key of the part."""
    causal = part.last > queries.first
    padded = part.first < 0
    windowed = window is not None and part.first <= queries.last - window
    if not (causal or padded or windowed):
        return None
    key, query = part.positions[:, None, :], queries.positions[:, :, None]
    seen = key >= 0
    if causal:
        seen = seen & (key <= query)
    if windowed:
        seen = seen & (key > query - window)
    return seen.expand(-1, query.shape[1], -1)


def _out_of_sight(part: Part, queries: Queries, window: int | None) -> bool:
    """Whether no query can see any key of the part: too old for the window, or all in the future."""
    too_old = window is not None and part.last <= queries.first - window
    return too_old or part.first > queries.last
