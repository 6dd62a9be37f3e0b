"""Split attention: attend to the untouched past and to the private tail without ever joining them.

A part is only read. The query heads that share one KV head, and the branches that share one past,
are folded into the query axis, so no key or value is repeated, concatenated or copied; only scores
(one number per query row and key) are laid side by side, under one softmax. Where the scores of all
parts would not fit a cache-sized block, blocks are attended in turn and merged by softmax mass.
Masks live in position space: a key may be seen when its position is not negative (padding), not
after the query, and inside the window.
Each block reports its mass as (maximum score, sum of exponentials): a sharp attention's float32
log-sum-exp of 50 has no digits left below 2e-6, which the pair keeps.
Sources: FlashAttention (blocks merged by log-sum-exp), Hydragen (shared prefix folded into the
query axis), the isolation document (read-only forward). The plain version is reference.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import frexp, inf

import torch

from harness.cache.kernels import cpu, flash, products

BLOCK = 2**23  # scores per block: 32 MiB in float32

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Part:
    """Keys and values to attend to.

    key, value: `[batch, kv_heads, tokens, head_dim]`; positions: `[batch, tokens]` int64, increasing.
    first, last: smallest and largest position, read once, so that no mask is built needlessly.
    uniform: all rows have the same positions, so that a window is a slice instead of a mask.
    seen: `[batch of the queries, new, tokens]` bool, what `visible` gives, where it was made before.
    """

    key: torch.Tensor
    value: torch.Tensor
    positions: torch.Tensor
    first: int
    last: int
    uniform: bool = False
    seen: torch.Tensor | None = None

    @classmethod
    def of(cls, key: torch.Tensor, value: torch.Tensor, positions: torch.Tensor) -> "Part":
        """Read the bounds of `positions` once (a device synchronization on CUDA)."""
        if not positions.numel():
            return cls(key, value, positions, 0, -1, True)
        uniform = len(positions) == 1 or bool((positions == positions[:1]).all())
        first, last = int(positions[:, 0].min()), int(positions[:, -1].max())
        return cls(key, value, positions, first, last, uniform)

    @property
    def tokens(self) -> int:
        return self.key.shape[2]

    def cut(self, start: int, stop: int) -> "Part":
        """Tokens `start:stop`, as views. The bounds stay valid, if wider than they need to be."""
        if start == 0 and stop == self.tokens:
            return self
        first, last = self.first, self.last
        if self.uniform and start < stop:
            first, last = int(self.positions[0, start]), int(self.positions[0, stop - 1])
        return replace(
            self,
            key=self.key[:, :, start:stop],
            value=self.value[:, :, start:stop],
            positions=self.positions[:, start:stop],
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


def split_attention(
    query: torch.Tensor,
    parts: list[Part],
    queries: Queries,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of `query` `[batch, heads, new, head_dim]` over all `parts` together.

    A part's batch divides the query's: row `b` of the query reads row `b // branches` of the part.
    scale multiplies the scores; softcap: `cap * tanh(score / cap)`; bias is then added (ALiBi and
    such): `[batch or 1, heads or 1, new or 1, tokens of all parts]`; window: keys at
    `position <= query - window` are unseen; sinks: `[heads]` logits that take softmax mass and give
    nothing. Returns `[batch, heads, new, value_dim]` in query's dtype. Mutates nothing. A query
    that may see no key at all gets zeros.
    """
    batch, heads, new, _ = query.shape
    in_sight = [
        (part, None if bias is None else bias[..., at : at + part.tokens])
        for at, part in seen_of(parts, queries, window)
    ]
    if not in_sight:
        return query.new_zeros(batch, heads, new, parts[0].value.shape[-1])
    seen = [part for part, _ in in_sight]
    plain = softcap is None and bias is None and sinks is None
    if plain and flash.available(query):
        given = [(part.key, part.value, visible(part, queries, window)) for part in seen]
        out = flash.attend(query, given, scale)
        if out is not None:
            return out
    if plain and all(visible(part, queries, window) is None for part in seen):
        out = _in_one_pass(query, seen, scale)
        if out is not None:
            return out
        if _is_small(query, seen):
            return _attend_plainly(query, seen, scale)
    blocks = _blocks(in_sight, BLOCK // max(batch * heads * new, 1))
    alone = len(blocks) == 1 and sinks is None
    results = [
        _attend(query, block, queries, scale, window, softcap, mass=not alone) for block in blocks
    ]
    if sinks is not None:
        out = results[0][0]
        top = sinks.to(out.dtype)[None, :, None].expand(out.shape[:3])
        results.append((torch.zeros_like(out), top, torch.ones_like(top)))
    return merge(results).to(query.dtype)


def merge(results: list[Triple]) -> torch.Tensor:
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
    """`[batch, new, tokens]` bool (batch of the queries), or None when every query sees every key."""
    if part.seen is not None:
        return part.seen
    causal = part.last > queries.first
    padded = part.first < 0
    windowed = window is not None and part.first <= queries.last - window
    if not (causal or padded or windowed):
        return None
    branches = len(queries.positions) // len(part.positions)
    key = part.positions.repeat_interleave(branches, 0)[:, None, :]
    query = queries.positions[:, :, None]
    seen = key >= 0
    if causal:
        seen = seen & (key <= query)
    if windowed:
        seen = seen & (key > query - window)
    return seen.expand(-1, query.shape[1], -1)


def _in_one_pass(query: torch.Tensor, parts: list[Part], scale: float) -> torch.Tensor | None:
    """Scores, softmax and values while K and V are read once, where a kernel does that."""
    if query.is_cuda:
        return None
    out = cpu.attend(query, [(part.key, part.value) for part in parts], scale)
    return None if out is None else out.to(query.dtype)


def _is_small(query: torch.Tensor, parts: list[Part]) -> bool:
    """Whether the scores fit one block and each row has its own past."""
    batch, rows = len(query), query.shape[1] * query.shape[2]
    if batch * rows * sum(part.tokens for part in parts) > BLOCK:
        return False
    return all(len(part.key) == batch and products.one_by_one(part.key) for part in parts)


def _attend_plainly(query: torch.Tensor, parts: list[Part], scale: float) -> torch.Tensor:
    """What `_attend` does, in as few operations as it takes when nothing is masked or folded."""
    batch, heads, new, head_dim = query.shape
    kv_heads = parts[0].key.shape[1]
    folded = query.reshape(batch * kv_heads, -1, head_dim)
    exact = query.dtype.itemsize >= 4 or abs(frexp(scale)[0]) == 0.5
    folded = folded * scale if exact else folded
    scores = [products.scores(folded, part.key.flatten(0, 1)) for part in parts]
    joined = torch.cat(scores, -1) if len(scores) > 1 else scores[0]
    weights = torch.softmax(joined if exact else joined * scale, -1)
    out, start = None, 0
    for part in parts:
        given = products.values(weights[..., start : start + part.tokens], part.value.flatten(0, 1))
        out = given if out is None else out.add_(given)
        start += part.tokens
    return out.view(batch, heads, new, -1).to(query.dtype)


def _attend(
    query: torch.Tensor,
    block: list[tuple[Part, torch.Tensor | None]],
    queries: Queries,
    scale: float,
    window: int | None,
    softcap: float | None,
    mass: bool,
) -> Triple:
    """One softmax over a block of parts: output `[batch, heads, new, value_dim]`, maximum score and
    sum of exponentials, each `[batch, heads, new]`, at least float32. Rows that see nothing: 0,
    -inf, 0. Without `mass` the last two mean nothing."""
    batch, heads, new, head_dim = query.shape
    kv_heads = block[0][0].key.shape[1]
    group = heads // kv_heads
    base = min(part.key.shape[0] for part, _ in block)
    work = torch.promote_types(query.dtype, torch.float32)
    exact = work == query.dtype or abs(frexp(scale)[0]) == 0.5
    # [base, kv_heads, branches, group * new, ...]: all branches meet a shared past in one product
    folded = query.reshape(base, batch // base, kv_heads, group * new, head_dim).transpose(1, 2)
    folded = folded * scale if exact else folded
    scores = query.new_empty(*folded.shape[:4], sum(p.tokens for p, _ in block), dtype=work)
    blind = True  # whether some row may see nothing at all
    start = 0
    for part, added in block:
        piece = scores[..., start : start + part.tokens]
        piece.copy_(_per_part(folded, part.key, products.scores))
        if not exact:
            piece.mul_(scale)
        if softcap is not None:
            piece.div_(softcap).tanh_().mul_(softcap)
        by_head = piece.unflatten(3, (group, new))
        if added is not None:
            by_head.add_(_folded(added, base, kv_heads, batch))
        seen = visible(part, queries, window)
        if seen is not None:
            by_head.masked_fill_(~_folded(seen[:, None], base, kv_heads, batch), -inf)
        blind = blind and (seen is not None or added is not None)
        start += part.tokens
    weights = torch.softmax(scores, -1)
    top = scores.amax(-1) if mass or blind else weights
    if blind:
        weights = torch.where((top == -inf)[..., None], 0.0, weights)
    out, start = None, 0
    for part, _ in block:
        given = _per_part(weights[..., start : start + part.tokens], part.value, products.values)
        out = given if out is None else out + given
        start += part.tokens
    out = out.transpose(1, 2).reshape(batch, heads, new, -1)
    if not mass:
        return out, top, top
    largest = weights.amax(-1)  # exp(0) / sum
    summed = torch.where(largest == 0, 0.0, 1.0 / largest)
    return out, *(t.transpose(1, 2).reshape(batch, heads, new) for t in (top, summed))


def _per_part(left: torch.Tensor, part: torch.Tensor, product: Product) -> torch.Tensor:
    """`product` of `left` `[base, kv_heads, branches, rows, x]` with a part's K or V
    `[base or batch, kv_heads, tokens, head_dim]`, for every branch: `[base, kv_heads, branches, rows, y]`."""
    base, _, branches, rows, _ = left.shape
    if part.shape[0] == base:
        return _matrices(left.flatten(2, 3), part, product).unflatten(2, (branches, rows))
    own = left.transpose(1, 2).flatten(0, 1)
    return _matrices(own, part, product).unflatten(0, (base, branches)).transpose(1, 2)


def _matrices(left: torch.Tensor, part: torch.Tensor, product: Product) -> torch.Tensor:
    """Batched `product` over the two leading dimensions; K and V are only viewed."""
    count, kv_heads = part.shape[:2]
    if products.one_by_one(part):
        out = product(left.flatten(0, 1), part.flatten(0, 1))
        return out.unflatten(0, (count, kv_heads))
    return torch.stack([product(mine, yours) for mine, yours in zip(left, part, strict=True)])


def _folded(mask: torch.Tensor, base: int, kv_heads: int, batch: int) -> torch.Tensor:
    """`[batch or 1, heads or 1, new or 1, tokens]` as `[base, kv_heads, branches, group, new, tokens]`,
    with 1 where it broadcasts."""
    heads = mask.shape[1]
    split = (1, 1) if heads == 1 else (kv_heads, heads // kv_heads)
    rows = (1, 1) if mask.shape[0] == 1 else (base, batch // base)
    return mask.view(*rows, *split, *mask.shape[2:]).transpose(1, 2)


def _blocks(
    parts: list[tuple[Part, torch.Tensor | None]], tokens: int
) -> list[list[tuple[Part, torch.Tensor | None]]]:
    """The parts, in blocks of at most `tokens` tokens (256 at least)."""
    tokens = max(tokens, 256)
    if sum(part.tokens for part, _ in parts) <= tokens:
        return [parts]
    blocks, room = [[]], tokens
    for part, added in parts:
        start = 0
        while start < part.tokens:
            if room == 0:
                blocks.append([])
                room = tokens
            stop = min(start + room, part.tokens)
            cut = None if added is None else added[..., start:stop]
            blocks[-1].append((part.cut(start, stop), cut))
            room -= stop - start
            start = stop
    return blocks


def seen_of(
    parts: list[Part], queries: Queries, window: int | None
) -> list[tuple[int, Part]]:
    """What of each part some query may see, by position, with its place among the tokens of all."""
    found, start = [], 0
    for part in parts:
        if part.tokens and not out_of_sight(part, queries, window):
            low, high = in_window(part, queries, window)
            found.append((start + low, part.cut(low, high)))
        start += part.tokens
    return found


def in_window(part: Part, queries: Queries, window: int | None) -> tuple[int, int]:
    """Token range of the part that some query may see through the window; exact for uniform rows."""
    oldest = None if window is None else queries.first - window + 1
    if oldest is None or not part.uniform or part.first >= oldest:
        return 0, part.tokens
    if part.last - part.first + 1 == part.tokens:  # no gaps
        return oldest - part.first, part.tokens
    found = torch.searchsorted(part.positions[0].contiguous(), oldest)
    return int(found), part.tokens


def out_of_sight(part: Part, queries: Queries, window: int | None) -> bool:
    """Whether no query can see any key of the part: too old for the window, or all in the future."""
    too_old = window is not None and part.last <= queries.first - window
    return too_old or part.first > queries.last
