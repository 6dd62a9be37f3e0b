"""Split attention: attend to the untouched past and to the private tail without ever joining them.

A part is only read. The query heads that share one KV head, and the branches that share one past,
are folded into the query axis, so no key or value is repeated, concatenated or copied; only scores
(one number per query row and key) are laid side by side, under one softmax. Where the scores of all
parts would not fit a cache-sized block, blocks are attended in turn and merged by softmax mass.
Each block reports its mass as (maximum score, sum of exponentials): a sharp attention's float32
log-sum-exp of 50 has no digits left below 2e-6, which the pair keeps.
Sources: FlashAttention (blocks merged by log-sum-exp), Hydragen (shared prefix folded into the
query axis), the isolation document (read-only forward). The plain version is reference.py.
"""

from collections.abc import Callable
from math import frexp, inf

import torch

from harness.attention.kernels import cpu, products
from harness.attention.kernels.cuda import decode, flash
from harness.attention.parts import Part, Queries, seen_of, visible

BLOCK = 2**23  # scores per block: 32 MiB in float32
CODED = 2**10  # tokens of codes that are decoded at a time
FEW = 2**15  # numbers of K, up to which an attention in float32 is computed in float64

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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
    if any(part.coded for part in seen):
        return _attend_coded(query, in_sight, queries, scale, window, softcap, sinks)
    plain = softcap is None and bias is None and sinks is None
    if plain and flash.available(query):
        masked = [(*part.pair, visible(part, queries, window)) for part in seen]
        for kernels in (decode, flash):
            out = kernels.attend(query, masked, scale)
            if out is not None:
                return out
    if plain and all(visible(part, queries, window) is None for part in seen):
        out = _in_one_pass(query, seen, scale)
        if out is not None:
            return out
        if _is_small(query, seen):
            return _attend_plainly(query, seen, scale)
    work = _precision(query, seen)
    blocks = _blocks(in_sight, BLOCK // max(batch * heads * new, 1))
    alone = len(blocks) == 1 and sinks is None
    results = [
        _attend(query, block, queries, scale, window, softcap, work, mass=not alone)
        for block in blocks
    ]
    if sinks is not None:
        results.append(_sunk(results[0][0], sinks))
    return merge(results).to(query.dtype)


def _attend_coded(
    query: torch.Tensor,
    in_sight: list[tuple[Part, torch.Tensor | None]],
    queries: Queries,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention where some parts are codes: block by block, so that no more than one block of the
    past is ever decoded at once. Arguments and result as of `split_attention`."""
    batch, heads, new, _ = query.shape
    work = _precision(query, [part for part, _ in in_sight])
    results: list[Triple] = []
    for block in _blocks(in_sight, min(CODED, BLOCK // max(batch * heads * new, 1))):
        numbers = [(part.dense(), added) for part, added in block]
        triple = _attend(query, numbers, queries, scale, window, softcap, work, mass=True)
        results.append(triple)
    if sinks is not None:
        results.append(_sunk(results[0][0], sinks))
    return merge(results).to(query.dtype)


def _sunk(out: torch.Tensor, sinks: torch.Tensor) -> Triple:
    """The triple of `sinks` `[heads]`, which take mass and give nothing, beside an `out` like theirs."""
    top = sinks.to(out.dtype)[None, :, None].expand(out.shape[:3])
    return torch.zeros_like(out), top, torch.ones_like(top)


def merge(results: list[Triple]) -> torch.Tensor:
    """Combine `(output, maximum, sum)` triples into the attention over their union."""
    if len(results) == 1:
        return results[0][0]
    top = torch.stack([r[1] for r in results]).amax(dim=0)
    top = torch.where(top == -inf, 0.0, top)
    masses = [mass * torch.exp(peak - top) for _, peak, mass in results]
    total, mixed = masses[0], masses[0][..., None] * results[0][0]
    for mass, (out, _, _) in zip(masses[1:], results[1:], strict=True):
        total, mixed = total + mass, mixed + mass[..., None] * out
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


def _in_one_pass(query: torch.Tensor, parts: list[Part], scale: float) -> torch.Tensor | None:
    """Scores, softmax and values while K and V are read once, where a kernel does that."""
    if query.is_cuda:
        return None
    out = cpu.attend(query, [part.pair for part in parts], scale)
    return None if out is None else out.to(query.dtype)


def _is_small(query: torch.Tensor, parts: list[Part]) -> bool:
    """Whether the scores fit one block and each row has its own past."""
    batch, rows = len(query), query.shape[1] * query.shape[2]
    if batch * rows * sum(part.tokens for part in parts) > BLOCK:
        return False
    keys = [part.pair[0] for part in parts]
    return all(len(key) == batch and products.one_by_one(key) for key in keys)


def _attend_plainly(query: torch.Tensor, parts: list[Part], scale: float) -> torch.Tensor:
    """What `_attend` does, in as few operations as it takes when nothing is masked or folded."""
    batch, heads, new, head_dim = query.shape
    kv_heads = parts[0].key.shape[1]
    folded = query.reshape(batch * kv_heads, -1, head_dim)
    folded = folded.to(_precision(query, parts)) if query.dtype.itemsize >= 4 else folded
    exact = query.dtype.itemsize >= 4 or abs(frexp(scale)[0]) == 0.5
    folded = folded * scale if exact else folded
    scores = [products.scores(folded, part.pair[0].flatten(0, 1)) for part in parts]
    joined = torch.cat(scores, -1) if len(scores) > 1 else scores[0]
    weights = torch.softmax(joined if exact else joined * scale, -1)
    shares = weights.split([part.tokens for part in parts], -1)
    values = [part.pair[1].flatten(0, 1) for part in parts]
    out = products.values(shares[0], values[0])
    for share, value in zip(shares[1:], values[1:], strict=True):
        out = out.add_(products.values(share, value))
    return out.view(batch, heads, new, -1).to(query.dtype)


def _attend(
    query: torch.Tensor,
    block: list[tuple[Part, torch.Tensor | None]],
    queries: Queries,
    scale: float,
    window: int | None,
    softcap: float | None,
    work: torch.dtype,
    mass: bool,
) -> Triple:
    """One softmax over a block of parts: output `[batch, heads, new, value_dim]`, maximum score and
    sum of exponentials, each `[batch, heads, new]`, of dtype `work`. Rows that see nothing: 0,
    -inf, 0. Without `mass` the last two mean nothing."""
    batch, heads, new, head_dim = query.shape
    kv_heads = block[0][0].key.shape[1]
    group = heads // kv_heads
    base = min(part.key.shape[0] for part, _ in block)
    query = query.to(work) if query.dtype.itemsize >= 4 else query
    exact = work == query.dtype or abs(frexp(scale)[0]) == 0.5
    # [base, kv_heads, branches, group * new, ...]: all branches meet a shared past in one product
    folded = query.reshape(base, batch // base, kv_heads, group * new, head_dim).transpose(1, 2)
    folded = folded * scale if exact else folded
    scores = query.new_empty(*folded.shape[:4], sum(p.tokens for p, _ in block), dtype=work)
    blind = True  # whether some row may see nothing at all
    start = 0
    for part, added in block:
        piece = scores[..., start : start + part.tokens]
        piece.copy_(_per_part(folded, part.pair[0], products.scores))
        if not exact:
            piece.mul_(scale)
        if softcap is not None:
            piece.div_(softcap).tanh_().mul_(softcap)
        by_head = piece.unflatten(3, (group, new))
        if added is not None:
            by_head.add_(_folded(added, base, kv_heads, batch))
        seen = visible(part, queries, window)
        if seen is not None:
            by_head.masked_fill_(~_folded(seen, base, kv_heads, batch), -inf)
        blind = blind and (seen is not None or added is not None)
        start += part.tokens
    weights = torch.softmax(scores, -1)
    top = scores.amax(-1) if mass or blind else weights
    if blind:
        weights = torch.where((top == -inf)[..., None], 0.0, weights)
    shares = weights.split([part.tokens for part, _ in block], -1)
    values = [part.pair[1] for part, _ in block]
    out = _per_part(shares[0], values[0], products.values)
    for share, value in zip(shares[1:], values[1:], strict=True):
        out = out + _per_part(share, value, products.values)
    out = out.transpose(1, 2).reshape(batch, heads, new, -1)
    if not mass:
        return out, top, top
    largest = weights.amax(-1)  # exp(0) / sum
    summed = torch.where(largest == 0, 0.0, 1.0 / largest)
    top, summed = (t.transpose(1, 2).reshape(batch, heads, new) for t in (top, summed))
    return out, top, summed


def _precision(query: torch.Tensor, parts: list[Part]) -> torch.dtype:
    """The dtype of scores and sums: float32 at least, and float64 where that costs next to nothing."""
    numbers = sum(part.key.numel() for part in parts)
    single = query.dtype == torch.float32 and query.device.type == "cpu"
    if single and numbers <= FEW and not torch.is_autocast_enabled("cpu"):
        return torch.float64
    return torch.promote_types(query.dtype, torch.float32)


def _per_part(left: torch.Tensor, part: torch.Tensor, product: Product) -> torch.Tensor:
    """`product` of `left` `[base, kv_heads, branches, rows, x]` with a part's K or V
    `[base or batch, kv_heads, tokens, head_dim]`, for every branch: `[base, kv_heads, branches, rows, y]`."""
    base, _, branches, rows, _ = left.shape
    if part.shape[0] == base:
        return _matrices(left.flatten(2, 3), part, product).unflatten(2, (branches, rows))
    folded = left.transpose(1, 2).flatten(0, 1)
    return _matrices(folded, part, product).unflatten(0, (base, branches)).transpose(1, 2)


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
    blocks: list[list[tuple[Part, torch.Tensor | None]]] = [[]]
    room = tokens
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
