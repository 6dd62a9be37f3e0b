"""A State out of keys and values that another program saved: only where they are those of the tokens."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.capture import check_length, check_vocabulary, new_cache, positions_of
from harness.compare.identity import Difference
from harness.engine.saved import Saved, halves
from harness.engine.saved.blocks import by_head, in_halves
from harness.errors import InputProblem, RestoreRefused
from harness.foreign import opening
from harness.model.loaded import Loaded
from harness.pipeline.interop import from_cache
from harness.pipeline.restore import MARGIN, waiving
from harness.pipeline.session import Session
from harness.prune.base import gathered
from harness.snapshot.codes import Codes, dense
from harness.snapshot.state import Segment, State

CHUNK = 16  # tokens of a prefill whose cache is rounded as the file rounds
TURNED = "RoPE of neighbours"
COARSE = (
    3.0  # how often codes may be further off than a grid as coarse: MARGIN would hide another token
)
ANGLE = 2.0**-23  # of a radian and position
TINY = 1e-30  # a step of a block whose numbers are all the same

Kept = torch.Tensor | Codes
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
Rounding = Callable[[torch.Tensor], torch.Tensor]


def stored(there: Saved, where: str) -> list[tuple[Kept, Kept]]:
    """Keys and values per layer, as the file keeps them. Raises InputProblem for a cache that does not
    hold what a continuation needs."""
    with opening(f"{where}, {there.kind},"):
        return there.keys_and_values()


def pairs(there: Saved, where: str) -> Pairs:
    """The same as numbers."""
    return [(dense(key), dense(value)) for key, value in stored(there, where)]


def kinds(there: Saved) -> str:
    """What the numbers are kept as, in the library's words."""
    names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
    names |= {name.upper(): dtype for name, dtype in names.items()}
    return ", ".join(sorted({names.get(row["dtype"], str(row["dtype"])) for row in there.layers}))


def fitted(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`tensor` with the KV heads of `like` `[batch, kv_heads, tokens, head_dim]`, where it has all of them
    as one; else as it is."""
    heads, size = like.shape[1], like.shape[3]
    if tensor.shape[:2] != (1, 1) or heads == 1 or tensor.shape[3] != heads * size:
        return tensor
    return tensor.reshape(1, tensor.shape[2], heads, size).transpose(1, 2)


def orders(keys: torch.Tensor) -> dict[str, torch.Tensor]:
    """The ways in which RoPE may have turned pairs of `keys`, each in the library's order."""
    return {"": keys, TURNED: halves(keys)} if keys.shape[-1] % 2 == 0 else {"": keys}


def adopted(
    session: Session, there: Saved, ids: Sequence[int], where: str
) -> tuple[State, dict[str, Any]]:
    """The State of `ids` with the keys and values of `there`, and what was measured on the way.

    The model reads the ids itself, and every key and value has to be where that puts it: within
    `MARGIN` times what another chunking and the file's own rounding do to this very model. Codes stay
    codes, where a snapshot has a form for them; of a window that dropped tokens, the State holds what is
    left, at its positions. Raises InputProblem for a file that cannot be one, RestoreRefused for one that
    is of other tokens or of another model; `restore.strict=false` takes it anyway; the State says what
    was waived.
    """
    loaded = session.loaded
    row = torch.tensor([list(ids)], device=loaded.device)
    check_length(loaded, row.shape[1], 1)
    check_vocabulary(loaded, row)
    places = there.positions or list(range(row.shape[1]))
    if places[-1] != row.shape[1] - 1:
        raise InputProblem(f"{where} is of {places[-1] + 1} tokens, given are {row.shape[1]}.")
    kept = stored(there, where)
    whole, seen = _nearest(loaded, row, there, kept)
    if there.positions and any(t.shape[2] != row.shape[1] for pair in whole for t in pair):
        raise InputProblem(f"{where} holds a window, and this model has windows of its own.")
    mine = _at(whole, there.positions)
    layers = [(fitted(dense(k), a), fitted(dense(v), b)) for (k, v), (a, b) in zip(kept, mine)]
    if wrong := _forms(layers, mine, len(there.layers)):
        raise RestoreRefused(where, wrong, fits=False)
    order, layers = _turned(layers, mine)
    rounding = _rounding(kept, there.grid)
    floors = _floors(loaded, row, mine, rounding, there.positions, seen)
    margin = COARSE if there.grid else MARGIN
    rows = [_measured(i, places, margin, *pair) for i, pair in enumerate(zip(layers, mine, floors))]
    wrong = [_difference(r, there) for r in rows if r["first_token"] is not None]
    if wrong and session.cfg.restore.strict:
        raise RestoreRefused(where, wrong)
    cache = new_cache(loaded)
    for index, pair in enumerate(layers):
        key, value = (t.clone() for t in whole[index])
        for t, part in zip((key, value), pair):
            t[:, :, there.positions or slice(None)] = part.to(t)
        cache.update(key, value, index)
    state = from_cache(session, cache, row, check=False)  # it was, as far as its codes allow
    codes = [_coded(pair, mine[i][0].shape[1], order, loaded.dtype) for i, pair in enumerate(kept)]
    state = _narrowed(loaded, _recoded(_rounded(state, kept, there), codes, there), there, seen)
    said: dict[str, Any] = {
        "kind": there.kind,
        "kept_as": kinds(there),
        "keys": order or "the library's order",
    }
    if there.grid:
        said["lossy"] = _lossy(there, state.quantized)
    return waiving(state, wrong), {**said, "positions": len(places), "layers": rows}


def _additive(seen: torch.Tensor, loaded: Loaded) -> torch.Tensor:
    """`[1, 1, new, all]`, added to scores: 0 where a token is read."""
    least = torch.finfo(loaded.dtype).min
    mask = torch.zeros(seen.shape, dtype=loaded.dtype).masked_fill(~seen, least)
    return mask[None, None].to(loaded.device)


def _at(pairs: Pairs, places: Sequence[int] | None) -> Pairs:
    return (
        pairs
        if places is None
        else [(key[:, :, places], value[:, :, places]) for key, value in pairs]
    )


def _coded(
    pair: tuple[Kept, Kept], heads: int, order: str, dtype: torch.dtype
) -> tuple[Codes, Codes] | None:
    """Key and value of a layer as a Segment's codes, `[1, kv_heads, tokens, head_dim]`; None where the file
    has none, or where they have no such form."""
    out = []
    for part, turned in zip(pair, (order == TURNED, False)):
        codes = part if isinstance(part, Codes) else None
        if codes is not None and codes.shape[1] != heads:
            codes = by_head(codes, heads)
        if codes is not None and turned:
            codes = in_halves(codes)
        if codes is None:
            return None
        out.append(replace(codes, dtype=dtype))
    return out[0], out[1]


def _rounded(state: State, kept: list[tuple[Kept, Kept]], there: Saved) -> State:
    """The State saying in which floating-point type its numbers were kept, where that is a coarser one."""
    if there.grid is not None:
        return state
    coarsest = max((p.dtype for pair in kept for p in pair), key=lambda d: torch.finfo(d).eps)
    if torch.finfo(coarsest).eps <= torch.finfo(state.dtype).eps:
        return state
    return state.with_layers(state.layers, rounded_to=str(coarsest).removeprefix("torch."))


def _recoded(state: State, codes: list[tuple[Codes, Codes] | None], there: Saved) -> State:
    """The State with codes in place of the numbers that they stand for; a layer without keeps numbers. Says
    either way that they were rounded."""
    if there.grid is None:
        return state
    layers = tuple(
        layer if pair is None else replace(layer, segments=(Segment(*pair, layer.positions),))
        for layer, pair in zip(state.layers, codes, strict=True)
    )
    kept = any(pair is not None for pair in codes)
    return state.with_layers(layers, quantized=[{"quantizer": there.kind, **_lossy(there, kept)}])


def _lossy(there: Saved, kept: bool) -> dict[str, Any]:
    bits, numbers = there.grid or (None, None)
    return {"bits": bits, "group": numbers, "codes": "kept" if kept else "opened"}


def _narrowed(loaded: Loaded, state: State, there: Saved, seen: torch.Tensor | None) -> State:
    """The State with the tokens at `kept` alone, where the file dropped others, and the logits that follow
    from these."""
    if there.positions is None or seen is None:
        return state
    kept, ids = there.positions, state.token_ids
    logits = loaded.forward(
        ids, positions_of(torch.ones_like(ids)), _additive(seen, loaded), keep=1
    )
    index = torch.tensor([list(kept)], device=state.device)
    layers = tuple(gathered(layer, index) for layer in state.layers)
    whole = seen.sum(1) == torch.arange(1, len(seen) + 1)
    note = {
        "policy": there.kind,
        "from_tokens": int(whole.cumprod(0).sum()),  # those after them saw a part of the past
        "kept_tokens": len(kept),
        "positions": "original",
        "at": "every token of a ring",
    }
    return replace(state, logits=logits[:, -1]).with_layers(layers, pruned=[note])


def _rounding(kept: list[tuple[Kept, Kept]], grid: tuple[int, int] | None) -> Rounding:
    """What the file's own form does to a number: its floating-point type, or a grid as coarse as its codes."""
    if grid is None:
        types = {part.dtype for pair in kept for part in pair}
        coarsest = max(types, key=lambda d: torch.finfo(d).eps)
        return lambda numbers: numbers.to(coarsest).to(numbers.dtype)
    bits, together = grid

    def rounded(numbers: torch.Tensor) -> torch.Tensor:
        blocks = numbers.unflatten(-1, (-1, math.gcd(together, numbers.shape[-1])))
        low = blocks.amin(-1, keepdim=True)
        step = ((blocks.amax(-1, keepdim=True) - low) / (2**bits - 1)).clamp(min=TINY)
        return (((blocks - low) / step).round() * step + low).flatten(-2)

    return rounded


def _nearest(
    loaded: Loaded, row: torch.Tensor, there: Saved, kept: list[tuple[Kept, Kept]]
) -> tuple[Pairs, torch.Tensor | None]:
    """Keys and values of `row`, and which tokens each of them read: of the ways in which the file can have
    come about, the one whose values lie nearest. None: all before it."""
    best: tuple[float, Pairs, torch.Tensor | None] | None = None
    for seen in there.seen() if there.seen else (None,):
        pairs = _prefilled(loaded, row, seen=seen)
        mine = _at(pairs, there.positions)
        values = [(fitted(dense(v), b), b) for (_, v), (_, b) in zip(kept, mine)]
        far = max((_gap(a, b) for a, b in values if a.shape == b.shape), default=0.0)
        if best is None or far < best[0]:
            best = far, pairs, seen
    assert best is not None
    return best[1], best[2]


def _prefilled(
    loaded: Loaded,
    row: torch.Tensor,
    chunk: int | None = None,
    rounding: Rounding | None = None,
    seen: torch.Tensor | None = None,
) -> Pairs:
    """Keys and values of `row`, rounded after every chunk where a rounding is given. seen: `[tokens, tokens]`,
    which tokens each one reads, where it is not all before it."""
    cache, positions = new_cache(loaded), positions_of(torch.ones_like(row))
    size = chunk or row.shape[1]
    for start in range(0, row.shape[1], size):
        part = slice(start, start + size)
        mask = None if seen is None else _additive(seen[part, : start + size], loaded)
        loaded.forward(row[:, part], positions[:, part], mask, cache, keep=1)
        if rounding is None:
            continue
        for layer in cache.layers:
            layer.keys, layer.values = rounding(layer.keys), rounding(layer.values)
    return [(layer.keys, layer.values) for layer in cache.layers]


def _floors(
    loaded: Loaded,
    row: torch.Tensor,
    mine: Pairs,
    rounding: Rounding,
    kept: Sequence[int] | None,
    seen: torch.Tensor | None,
) -> list[float]:
    """Per layer, what other chunks and the file's rounding do; never below that rounding alone, nor what
    float32 loses of RoPE's largest angle, which another program may round otherwise."""
    others = [
        _at(_prefilled(loaded, row, CHUNK, rounding, seen), kept),
        _at(_prefilled(loaded, row, max(row.shape[1] // 4, 1), None, seen), kept),
    ]
    out = []
    for index, pair in enumerate(mine):
        eps = max(torch.finfo(loaded.dtype).eps, ANGLE * row.shape[1] / MARGIN)
        least = eps * max(float(t.abs().max()) for t in pair)
        alone = [2 * _gap(rounding(t), t) for t in pair]
        gaps = [_gap(x, y) for other in others for x, y in zip(other[index], pair)]
        out.append(max(least, *alone, *gaps))
    return out


def _forms(layers: Pairs, mine: Pairs, count: int) -> list[Difference]:
    """Differences of number and shape, before any number is looked at."""
    if count != len(mine):
        return [Difference("1 kv_cache", "layers", count, len(mine))]
    return [
        Difference("1 kv_cache", f"layer {i} shape", list(x.shape), list(y.shape))
        for i, (a, b) in enumerate(zip(layers, mine))
        for x, y in zip(a, b)
        if x.shape != y.shape
    ]


def _turned(layers: Pairs, mine: Pairs) -> tuple[str, Pairs]:
    """The order of RoPE whose keys lie nearer to the model's own, and the layers in it."""

    def distance(name: str) -> float:
        return max(_gap(orders(k)[name], a) for (k, _), (a, _) in zip(layers, mine))

    best = min(orders(layers[0][0]), key=distance)
    return best, [(orders(k)[best], v) for k, v in layers]


def _measured(
    index: int, kept: Sequence[int], margin: float, pair: Any, mine: Any, floor: float
) -> dict[str, Any]:
    """How far one layer is off, and the first token that is further than it may be."""
    differences = [(x.double() - y.double()).abs() for x, y in zip(pair, mine)]
    gaps = torch.stack([d.amax((0, 1, 3)) for d in differences]).amax(0)
    allowed = margin * floor
    beyond = (~(gaps <= allowed)).nonzero()
    first = kept[int(beyond[0, 0])] if len(beyond) else None
    off = {"off_by": float(gaps.max()), "floor": floor, "allowed": allowed}
    return {"layer": index, **off, "first_token": first}


def _difference(row: dict[str, Any], there: Saved) -> Difference:
    what = f"layer {row['layer']}, token {row['first_token']}: read by this model"
    if there.positions is not None:
        what += (
            " (its window had dropped tokens; no way of reading them that was tried ends like this)"
        )
    saved, expected = f"off by {row['off_by']:.3g}", f"within {row['allowed']:.3g}"
    return Difference("1 kv_cache", what, saved, expected)


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())
