"""How far a state is from what its token buffer gives, layer by layer and row by row, in noise floors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.compare import likeness
from harness.compare.likeness import Pair
from harness.snapshot.codes import Codes
from harness.snapshot.state import LayerState, State

MARGIN = 8.0  # how often the noise, the largest of a few draws, may be exceeded; the proof's own

BEYOND = 1e300  # how far off what is no number counts as


@dataclass(frozen=True)
class Recomputed:
    """What a token buffer gives: per layer the K/V at every position and the recurrent tensors.

    kv: `(key, value)` of `[batch, kv_heads, tokens, head_dim]` or None. floors: what other ways of
    computing the same numbers change, per layer by part (`key`, `value`, recurrent names).
    logits: `[batch, vocab]` of the last token; logits_floor. ties: `(layer, token)` where a router's
    choice lies within its noise. spread: what those ways change of keys and values as a whole, of half
    precision; see `compare/spread.py`.
    """

    kv: list[Pair | None]
    recurrent: list[Mapping[str, torch.Tensor]]
    floors: list[dict[str, float]]
    logits: torch.Tensor
    logits_floor: float
    ties: Sequence[tuple[int, int]] = ()
    spread: Sequence[Mapping[str, float]] = ()


def stepped(state: State, right: Recomputed, layer: int) -> dict[str, float]:
    """The floors of one layer, widened where it keeps codes: MARGIN floors are one step of these."""
    floors, pair = dict(right.floors[layer]), right.kv[layer]
    segments = state.layers[layer].segments
    codes = [c for s in segments for c in (s.key, s.value) if isinstance(c, Codes)]
    if codes and pair is not None:
        steps = min(_steps(c) for c in codes)
        for part, tensor in zip(("key", "value"), pair, strict=True):
            floors[part] = max(floors[part], float(tensor.abs().max()) / steps / MARGIN)
    return floors


def _steps(codes: Codes) -> float:
    """Into how many steps the largest number of a span is divided."""
    if codes.codes.dtype.is_floating_point:
        return 1 / torch.finfo(codes.codes.dtype).eps
    return 2 ** (codes.bits - 1) - 1


def much(off: float, coded: bool, several: bool) -> str:
    """How far the worst of some rows is `off`, in words. coded: in steps of codes; several: of more heads than one."""
    if off >= BEYOND:
        return "no numbers (NaN or infinite)"
    worst = "up to " if several else ""
    if coded:
        return f"{worst}{off / MARGIN:.3g} steps of the codes"
    return f"{worst}{off:.3g} times the noise of this layer's keys and values"


def aligned(pair: Pair, layer: LayerState) -> Pair:
    """The rows of `pair` `[batch, kv_heads, tokens, head_dim]` at the positions that `layer` kept,
    zeros for padding."""
    at = layer.positions
    at = (at if at.dim() == 3 else at[:, None].expand(-1, pair[0].shape[1], -1)).to(pair[0].device)
    index = at.clamp(0, pair[0].shape[2] - 1)[..., None]
    key, value = (
        t.gather(2, index.expand(*index.shape[:3], t.shape[3])) * (at >= 0)[..., None] for t in pair
    )
    return key, value


def other_layer(
    state: State, right: Recomputed, index: int, allowed: Mapping[int, tuple[float, float]]
) -> int | None:
    """The layer whose keys and values the layer `index` holds, at the positions that are its own or, where pruning
    left others to each, at those of that layer. allowed: how far off by each layer, keys and values."""
    layers = {layer.index: layer for layer in state.layers if layer.index in allowed}
    known = {i: kv for i in layers if (kv := right.kv[i]) is not None}
    held, limits = (layers[index].key, layers[index].value), [allowed[i] for i in known]
    for own in (True, False):
        there = [aligned(kv, layers[i if own else index]) for i, kv in known.items()]
        place = likeness.other_layer(held, there, limits)
        if place is not None:
            return list(known)[place]
    return None


def picture_of(
    state: State, right: Recomputed
) -> tuple[list[list[float]], tuple[int, list[int], int] | None]:
    """Error in noise floors by layer and row, the largest of its heads, and the first `(layer, heads,
    row)` beyond MARGIN: every head that is beyond it there."""
    picture: list[list[float]] = []
    first = None
    for layer in state.layers:
        floors = right.floors[layer.index]
        if not layer.segments:
            recurrent = right.recurrent[layer.index]
            worst = [_off(t, recurrent.get(n), floors[n]) for n, t in layer.recurrent.items()]
            picture.append([max(worst)] if worst else [])
            continue
        pair = right.kv[layer.index]
        assert pair is not None  # the very model keeps keys and values there
        expected = aligned(pair, layer)
        real = (layer.positions >= 0).to(expected[0].device)
        real = real if real.dim() == 3 else real[:, None]
        errors = [
            (a.double() - b.double()).abs().nan_to_num(nan=torch.inf).amax(-1) * real / floors[part]
            for part, a, b in zip(("key", "value"), (layer.key, layer.value), expected, strict=True)
        ]
        error = torch.stack(errors).amax((0, 1)).nan_to_num(nan=0.0, posinf=BEYOND)  # [heads, rows]
        rows = error.amax(0).tolist()
        picture.append(rows)
        if first is None and max(rows) > MARGIN:
            row = next(i for i, off in enumerate(rows) if off > MARGIN)
            first = (layer.index, (error[:, row] > MARGIN).nonzero()[:, 0].tolist(), row)
    return picture, first


def _off(stored: torch.Tensor, expected: torch.Tensor | None, floor: float) -> float:
    """How many noise floors apart."""
    if expected is None or stored.shape != expected.shape:
        return BEYOND
    compared = ~expected.isnan()  # not where a row of a batch is padding
    gap = float((stored.double() - expected.double()).abs()[compared].max())
    return gap / floor if gap == gap else BEYOND


def worn(state: State, right: Recomputed) -> tuple[int, str, float] | None:
    """`(layer, name, noise floors)` of the first recurrent tensor that leaves the noise."""
    for layer in state.layers:
        for name, tensor in sorted(layer.recurrent.items()):
            off = _off(
                tensor, right.recurrent[layer.index].get(name), right.floors[layer.index][name]
            )
            if not off <= MARGIN:
                return layer.index, name, off
    return None
