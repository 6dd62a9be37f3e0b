"""Is what a state holds that of its tokens? Every row of keys and values and every recurrent tensor, attended to or not,
beside what the ids give.

The truth is float64's; plain cached runs in the working dtype say how far rounding goes. A row counts in noise floors:
its distance from the nearest of them over the median distance that they have from the truth. Measured over 23 families:
healthy rows 1 to 4, rows of another token 240 (bfloat16) to 3e6 (float32). Where experts are chosen, a tie may send a
token another way: its row is then held against its own length. Codes are near to their own token, however coarse.
Nothing that the state says of itself is asked; the numbers say by themselves whether a narrower type held them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.compare import spread
from harness.compare.checks import FAILED, NOT_ASKED, PASSED, Check
from harness.config import CacheConfig
from harness.pipeline.budget import continuation
from harness.pipeline.logic import kept
from harness.pipeline.tail import Tail
from harness.pipeline.way import WHOLE
from harness.snapshot import history
from harness.snapshot.codes import dense
from harness.snapshot.state import LayerState, State

ROW = 8.0  # noise floors
ELSEWHERE = 0.5  # of its own length: routing that fell the other way measures 0.34 at most, another token 0.77
CLOSE = 0.75  # of the median distance from other tokens: three levels in place of 255 stay below
OTHERS = 256  # tokens that a coarse row is laid beside
NARROW = (torch.bfloat16, torch.float16)
PARTS = ("key", "value")


@dataclass(frozen=True)
class Rows:
    """Keys or values of one layer, `[batch, kv_heads, tokens, head_dim]` float64: as held, exact, and of plain runs. real:
    `[batch, kv_heads, tokens]`, no padding; coded: `[tokens]`, kept as codes; tokens: `[batch, kv_heads, tokens]` places in
    the buffer."""

    layer: int
    part: str
    mine: torch.Tensor
    exact: torch.Tensor
    plains: Sequence[torch.Tensor]
    real: torch.Tensor
    coded: torch.Tensor
    tokens: torch.Tensor


def stored(held: State, runs: Sequence[Sequence[LayerState]], experts: bool = False) -> Check:
    """Whether the layers of `held` are what its ids give.

    runs: the layers of a run over the same ids, laid beside those of `held` row for row: first float64's (of a twin its
    first layers; the others are held against the next run), then plain ones in the working dtype. experts: whether
    tokens are routed. Mutates nothing.
    """
    found = list(_found(held, runs, experts))
    if not found:
        return Check("stored", NOT_ASKED, "no_rows", needed=False)
    wrong = [check for check in found if check.outcome == FAILED]
    if wrong:  # the first single row before heads that are off as a whole
        return min(wrong, key=lambda check: check.code in ("coarse", "head"))
    return max(found, key=lambda check: check.figures["off"])


def appended(
    past: Sequence[LayerState],
    tail: Tail,
    held: State,
    exact: Tail,
    plains: Sequence[Tail],
    end: int,
    experts: bool = False,
) -> Check:
    """Whether what would be stored next is what was fed: a decoder may attend to one thing and hand out another, and only
    whoever goes on from the next snapshot would notice.

    past: all layers that were handed out, of which what `held` held is bit-equal. tail: of what was fed, up to the `end`-th
    token. exact, plains: the same of the run in float64 and of plain runs in the working dtype.
    """
    if not tail or held.pruned or held.quantized:
        return Check("appended", NOT_ASKED, "another_past", needed=False)
    changed = [la.index for la, old in zip(past, held.layers) if not _same(la, old)]
    if changed:
        return Check("appended", FAILED, "rewritten", {"layer": changed[0]})
    found = []
    for index, mine in enumerate(tail):
        true, *rest = [t[index] for t in (exact, *plains) if index < len(t)]
        for name in true:
            where = {"layer": index, "part": name}
            if name not in mine or mine[name].shape != true[name].shape:
                found.append(Check("appended", FAILED, "missing", where))
            elif name in PARTS:
                found.append(
                    _rows_fed(
                        where, mine[name], true[name], [p[name] for p in rest], held, end, experts
                    )
                )
            else:
                found.append(
                    _tensor(where, mine[name], true[name], [p[name] for p in rest], held.dtype)
                )
    wrong = next((check for check in found if check.outcome == FAILED), None)
    worst = wrong or max(found, key=lambda check: check.figures["off"])
    return replace(worst, name="appended", code=worst.code and f"next_{worst.code}")


def _same(grown: LayerState, old: LayerState) -> bool:
    """Whether `grown` begins with what `old` held, of a window with the end of it."""
    if not (grown.segments and old.segments):
        return bool(grown.segments) == bool(old.segments)
    start = max(grown.seen - grown.kept, old.seen - old.kept)
    if start >= old.seen:
        return True
    mine, before = (
        slice(start - la.seen + la.kept, old.seen - la.seen + la.kept) for la in (grown, old)
    )
    return all(
        torch.equal(getattr(grown, part)[:, :, mine], getattr(old, part)[:, :, before])
        for part in PARTS
    )


def _rows_fed(
    where: dict[str, Any],
    mine: torch.Tensor,
    exact: torch.Tensor,
    plains: Sequence[torch.Tensor],
    held: State,
    end: int,
    experts: bool,
) -> Check:
    shape, device = mine.shape[:3], exact.device
    first = end - shape[2]
    tokens = torch.arange(first, end, device=device).expand(shape)
    real = torch.ones(shape, dtype=torch.bool, device=device)
    each = [t.to(device).double() for t in (mine, exact, *plains)]
    coded = torch.zeros(shape[2], dtype=torch.bool, device=device)
    rows = Rows(where["layer"], where["part"], each[0], each[1], each[2:], real, coded, tokens)
    if not bool(rows.mine.isfinite().all()):
        return Check("stored", FAILED, "not_finite", where)
    return _single(rows, real, held.dtype, experts)


def alike(model: Any, run: State, held: State) -> Sequence[LayerState]:
    """The layers of `run`, which holds every token of `held`, as `held` would have them: what a pruning kept, and what was
    read over that since, by the library's growing cache on `model` (a Loaded)."""
    if not held.pruned:
        return run.layers
    later = held.tokens - history.since(held)
    if not later:
        return kept(run, held).layers
    cut = tuple(ending_before(la, later) for la in held.layers)
    stop = held.tokens - later
    ids, mask = held.token_ids[:, :stop], held.attention_mask[:, :stop]
    before = replace(held, layers=cut, next_position=held.next_position - later)
    small = replace(
        kept(run, before), token_ids=ids.to(run.device), attention_mask=mask.to(run.device)
    )
    decoder = continuation(model, small, CacheConfig("dynamic"), WHOLE)
    decoder.step(held.token_ids[:, stop:])
    return decoder.commit().layers


def ending_before(layer: LayerState, tokens: int) -> LayerState:
    """`layer` without its last `tokens` tokens."""
    left, segments = layer.kept - min(tokens, layer.kept), []
    for segment in layer.segments:
        if left > 0:
            segments.append(segment.cut(0, min(left, segment.tokens)))
        left -= segment.tokens
    return replace(layer, segments=tuple(segments), seen=layer.seen - tokens)


def _found(held: State, runs: Sequence[Sequence[LayerState]], experts: bool) -> Iterator[Check]:
    for index, mine in enumerate(held.layers):
        same = [layers[index] for layers in runs if index < len(layers)]
        if any(la.kept for la in same) and not mine.kept:
            yield Check("stored", FAILED, "missing", {"layer": index, "part": "keys and values"})
        elif mine.segments:
            for rows in _rows(held, mine, same):
                yield from _judged(rows, held.dtype, experts)
        if not held.pruned:
            yield from _recurrent(mine, same, held.dtype)


def _rows(held: State, mine: LayerState, same: Sequence[LayerState]) -> Iterator[Rows]:
    """Of the tokens that all of them hold."""
    heads = mine.segments[0].key.shape[1]
    width = min(la.kept for la in (mine, *same))
    device = same[0].key.device
    places = mine.positions.to(device)[..., -width:]
    places = (places if places.dim() == 3 else places[:, None]).expand(-1, heads, -1)
    pad = (held.attention_mask == 0).sum(1).to(device)
    coded = torch.cat([torch.full((s.tokens,), s.coded) for s in mine.segments])[-width:].to(device)
    for part in PARTS:
        each = [getattr(la, part)[:, :, -width:] for la in same]
        ours = torch.cat([dense(getattr(s, part)) for s in mine.segments], 2)[:, :, -width:].to(
            device
        )
        real = places >= 0
        shown = [t.double() * real[..., None] for t in (ours, *each)]
        tokens = places + pad[:, None, None]
        yield Rows(mine.index, part, shown[0], shown[1], shown[2:], real, coded, tokens)


def _judged(rows: Rows, dtype: torch.dtype, experts: bool) -> Iterator[Check]:
    where = {"layer": rows.layer, "part": rows.part}
    if not bool(rows.mine.isfinite().all()):
        yield Check("stored", FAILED, "not_finite", where)
        return
    plain = ~rows.coded & rows.real
    if bool(plain.any()):
        yield _single(rows, plain, dtype, experts)
        if spread.told(dtype) and not experts and not bool(rows.coded.any()):
            yield from _together(rows, dtype)
    if bool((rows.coded & rows.real).any()):
        yield _near(rows, rows.coded & rows.real)


def _single(rows: Rows, asked: torch.Tensor, dtype: torch.dtype, experts: bool) -> Check:
    """The row that is furthest from what its token gives."""
    noise = torch.stack(
        [_apart(p, rows.exact) for p in rows.plains] or [_apart(rows.exact, rows.exact)]
    )
    usual = noise.amax(0).masked_fill(~rows.real, -1).amax((0, 1))
    least = max(torch.finfo(dtype).eps / 2, _unit(rows, asked, dtype) / 4)
    floor = max(float(usual[usual >= 0].median()) if bool((usual >= 0).any()) else 0.0, least)
    off = torch.stack([_apart(rows.mine, p) for p in (*rows.plains, rows.exact)]).amin(0)
    off = off.masked_fill(~asked, 0.0)
    wrong = off > (max(ROW * floor, ELSEWHERE) if experts else ROW * floor)
    where = _where(rows, off, wrong)
    figures = {"off": float(off.max()) / floor, "bound": ROW, **where}
    if not bool(wrong.any()):
        return Check("stored", PASSED, "", figures)
    figures["off"] = float(off.masked_fill(~wrong, 0.0).max()) / floor
    near = _near(rows, wrong)
    return Check("stored", FAILED, "row" if near.outcome == FAILED else "coarse", figures)


def _near(rows: Rows, asked: torch.Tensor) -> Check:
    """Whether the rows `asked` are nearer to their own tokens than to others, as whatever was rounded is."""
    some = torch.linspace(0, rows.exact.shape[2] - 1, min(OTHERS, rows.exact.shape[2])).long()
    others = rows.exact[:, :, some.to(rows.exact.device)]
    hidden = ~rows.real[:, :, some.to(rows.real.device)]
    usual = (
        torch.cdist(rows.mine, others)
        .masked_fill(hidden[:, :, None], torch.nan)
        .nanmedian(-1)
        .values
    )
    share = ((rows.mine - rows.exact).norm(dim=-1) / usual.clamp(min=1e-300)).masked_fill(
        ~asked, 0.0
    )
    wrong = share > CLOSE
    figures = {"off": float(share.max()) / CLOSE * ROW, "bound": ROW, **_where(rows, share, wrong)}
    if not bool(wrong.any()):
        return Check("stored", PASSED, "codes", figures)
    return Check("stored", FAILED, "foreign", figures)


def _together(rows: Rows, dtype: torch.dtype) -> Iterator[Check]:
    """A head whose numbers leave the noise as a whole, where none does alone: half precision hides a scale of 1%."""
    measured = [spread.spread(p, rows.exact, rows.real) for p in rows.plains]
    floor = spread.floors(measured, rows.exact.shape[2], dtype)
    if unit := _unit(rows, rows.real, dtype):
        floor[spread.RMS] = max(floor[spread.RMS], unit / 2)
    nearest = [spread.spread(rows.mine, p, rows.real) for p in (*rows.plains, rows.exact)]
    if all(spread.beyond(seen, floor) for seen in nearest):
        seen = nearest[0]
        if found := spread.beyond(seen, floor):
            kind, head = found
            off = float(seen[kind][head])
            evidence = spread.said(rows.part, kind, head, rows.layer, off, floor[kind])
            figures = {"off": abs(off) / floor[kind], "bound": spread.FACTOR[kind], "layer": rows.layer,
                       "part": rows.part, "head": head, "kind": kind, "evidence": evidence}  # fmt: skip
            yield Check("stored", FAILED, "head", figures)


def _recurrent(mine: LayerState, same: Sequence[LayerState], dtype: torch.dtype) -> Iterator[Check]:
    """Recurrent and convolution tensors and an index over the keys."""
    for name, true in same[0].recurrent.items():
        where = {"layer": mine.index, "part": name}
        ours = mine.recurrent.get(name)
        if ours is None or ours.shape != true.shape:
            yield Check("stored", FAILED, "missing", where)
        else:
            rest = [la.recurrent[name] for la in same[1:] if name in la.recurrent]
            yield _tensor(where, ours, true, rest, dtype)


def _tensor(
    where: dict[str, Any],
    mine: torch.Tensor,
    exact: torch.Tensor,
    plains: Sequence[torch.Tensor],
    dtype: torch.dtype,
) -> Check:
    """A tensor without rows: as a whole, and by its largest number."""
    ours, true, *rest = (t.to(exact.device).double() for t in (mine, exact, *plains))
    most, half = 0.0, torch.finfo(dtype).eps / 2 if exact.is_floating_point() else 0.0
    for size in (torch.norm, _peak):
        floor = max([float(size(true)) * half, 1e-300, *(float(size(p - true)) for p in rest)])
        off = min(float(size(ours - p)) for p in (*rest, true))
        most = max(most, off / floor) if off == off else float("inf")
    return Check.of("stored", most, ROW, "state", **where)


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`[batch, kv_heads, tokens]` distance of each row, relative to its length."""
    return (one - other).norm(dim=-1) / other.norm(dim=-1).clamp(min=1e-300)


def _unit(rows: Rows, asked: torch.Tensor, dtype: torch.dtype) -> float:
    """One rounding of the narrowest type that holds every number `asked` without loss; 0 where it is `dtype` itself."""
    numbers = rows.mine[asked]
    coarser = (kind for kind in NARROW if torch.finfo(kind).eps > torch.finfo(dtype).eps)
    return max(
        (torch.finfo(k).eps for k in coarser if torch.equal(numbers.to(k).double(), numbers)),
        default=0.0,
    )


def _where(rows: Rows, off: torch.Tensor, wrong: torch.Tensor) -> dict[str, int]:
    """The first token that is `wrong`, or the one that is furthest off."""
    if bool(wrong.any()):
        row, token, head = wrong.transpose(1, 2).nonzero()[0].tolist()
    else:
        place = int(off.argmax())
        row, head, token = (int(i) for i in torch.unravel_index(torch.tensor(place), off.shape))
    return {"layer": rows.layer, "part": rows.part, "token": int(rows.tokens[row, head, token]), "head": head, "row": row}  # fmt: skip


def _peak(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs().amax()
