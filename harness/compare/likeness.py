"""What damaged keys and values are like: those of another layer, head, row or scale of the same past.

Every question undoes one kind of damage and asks whether what is left lies within rounding. A layer
is a pair `(key, value)` of `[batch, kv_heads, tokens, head_dim]`; nothing is mutated.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

Pair = tuple[torch.Tensor, torch.Tensor]
ROWS = 256  # `rounded` lays so many beside each other
CLOSE = 0.75  # three levels in place of 255 stay below; rows of other tokens are around 1, or above
NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16)


def near(stored: torch.Tensor, expected: torch.Tensor, allowed: float) -> bool:
    """Whether every number of `stored` lies within `allowed` of `expected`."""
    if stored.shape != expected.shape or not stored.numel():
        return stored.shape == expected.shape
    return bool((stored.double() - expected.double()).abs().max() <= allowed)


def narrow(pairs: Sequence[Sequence[torch.Tensor]]) -> str | None:
    """The narrower type in which every number of every layer can be written without loss, if any."""
    for kind in NARROW:
        if kind.itemsize < pairs[0][0].element_size() and all(
            torch.equal(t.to(kind).to(t.dtype), t) for pair in pairs for t in pair
        ):
            return str(kind).removeprefix("torch.")
    return None


def narrowed(stored: torch.Tensor, expected: torch.Tensor, allowed: float) -> str | None:
    """The narrower type that `stored` is `expected` in, where it is: one rounding away at most, beside `allowed`."""
    kind = narrow([(stored,)])
    if kind is None or stored.shape != expected.shape:
        return None
    step = torch.finfo(getattr(torch, kind)).eps
    off = (stored.double() - expected.double()).abs()
    return kind if bool((off <= step * expected.double().abs() + allowed).all()) else None


def other_layer(stored: Pair, layers: list[Pair], allowed: list[tuple[float, float]]) -> int | None:
    """The layer whose keys and values `stored` holds, if they are a layer's."""
    for index, (pair, (key, value)) in enumerate(zip(layers, allowed, strict=True)):
        if near(stored[0], pair[0], key) and near(stored[1], pair[1], value):
            return index
    return None


def layouts() -> Iterator[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """`(what was done, how it would have changed the right tensor)` for orders of dimensions."""

    def tokens_first(t: torch.Tensor) -> torch.Tensor:
        return t.transpose(1, 2).contiguous().view(t.shape)

    def dims_first(t: torch.Tensor) -> torch.Tensor:
        batch, heads, tokens, dim = t.shape
        rows = t.permute(0, 2, 3, 1).contiguous()
        return rows.view(batch, tokens, heads, dim).transpose(1, 2)

    def heads_last(t: torch.Tensor) -> torch.Tensor:
        batch, heads, tokens, dim = t.shape
        rows = t.transpose(1, 2).contiguous().view(batch, tokens, dim, heads)
        return rows.permute(0, 3, 1, 2)

    yield "[tokens, heads] read as [heads, tokens]", tokens_first
    yield "[head_dim, heads] read as [heads, head_dim]", dims_first
    yield "[heads, head_dim] read as [head_dim, heads]", heads_last


def head_order(stored: Pair, expected: Pair, allowed: tuple[float, float]) -> list[int] | None:
    """Which expected head stands at each place, when all are there in another order."""
    order = []
    for head in range(stored[0].shape[1]):
        at = [
            other
            for other in range(expected[0].shape[1])
            if near(stored[0][:, head], expected[0][:, other], allowed[0])
            and near(stored[1][:, head], expected[1][:, other], allowed[1])
        ]
        if not at:
            return None
        order.append(at[0])
    return order if sorted(order) == list(range(len(order))) and order != sorted(order) else None


def factor(stored: torch.Tensor, expected: torch.Tensor, allowed: float) -> float | None:
    """The one factor by which heads or rows of `stored` are too large, where one explains them:
    the largest among heads and tokens. None where none does."""
    for dims in ((0, 2, 3), (3,)):  # one for each head, or for each row; an offset is no scale
        a, b = (t - t.mean(dims, keepdim=True) for t in (stored.double(), expected.double()))
        size = (b * b).sum(dims, keepdim=True)
        c = (a * b).sum(dims, keepdim=True) / size.clamp(min=1e-300)
        left = (a - c * b).abs()
        if bool((left <= allowed * c.abs().clamp(min=1)).all()) and bool((c.abs() > 1e-3).all()):
            return float(c.flatten()[(c - 1).abs().argmax()])
    return None


def other_rows(
    stored: Pair, expected: Pair, rows: list[int], allowed: tuple[float, float], by: tuple[int, ...]
) -> dict[int, int]:
    """For each of `rows` the expected row that stands there instead, where one does: not where the row's
    own does as well. by: told by keys (0), values (1) or both."""
    place = {}
    for row in rows:
        fits = torch.ones(expected[0].shape[2], dtype=torch.bool, device=expected[0].device)
        for part in by:
            gap = expected[part].double() - stored[part][:, :, row : row + 1].double()
            fits &= gap.abs().amax((0, 1, 3)) <= allowed[part]
        if bool(fits.any()) and not bool(fits[row]):
            place[row] = int(fits.nonzero()[0, 0])
    return place


def rounded(stored: torch.Tensor, expected: torch.Tensor, real: torch.Tensor) -> bool:
    """Whether rounding, however coarse, explains `stored`: each row is much nearer to the one that it
    stands for than to the rows of other tokens (CLOSE times the median). real: `[batch, 1 or kv_heads,
    tokens]`, False for padding. Of many rows, ROWS spread over all are asked."""
    at = torch.linspace(0, stored.shape[2] - 1, min(ROWS, stored.shape[2])).long().to(real.device)
    a, b = stored[:, :, at].double(), expected[:, :, at].double()
    real = real.expand(stored.shape[:3])[:, :, at]
    apart = torch.cdist(a, b).masked_fill(~real[:, :, None], torch.nan)
    alone = (a - b).norm(dim=-1)
    return bool((alone <= CLOSE * apart.nanmedian(-1).values)[real].all())


def turned(stored: torch.Tensor, expected: torch.Tensor, allowed: float) -> bool:
    """Whether keys differ by a rotation only: every row is as long as it should be."""
    size = stored.shape[-1] ** 0.5
    gap = (stored.double().norm(dim=-1) - expected.double().norm(dim=-1)).abs().max()
    return bool(gap <= allowed * size)


def turned_in_pairs(stored: torch.Tensor, expected: torch.Tensor, allowed: float) -> bool:
    """The same of keys that codes made coarse, where rounding may leave a whole row its length: each pair of numbers
    that RoPE turns together is as long as it should be, of halves or of neighbours, of all numbers of a head or of the
    first half or quarter of them."""
    width, a, b = stored.shape[-1], stored.double(), expected.double()
    for wide in (w for w in (width, width // 2, width // 4) if w % 2 == 0 and w):
        rest = (a[..., wide:] - b[..., wide:]).abs()
        if rest.numel() and not bool((rest <= allowed).all()):
            continue
        for shape, along in (((2, wide // 2), -2), ((wide // 2, 2), -1)):
            pairs = [t[..., :wide].unflatten(-1, shape).norm(dim=along) for t in (a, b)]
            if bool(((pairs[0] - pairs[1]).abs() <= allowed * 2**0.5).all()):
                return True
    return False
