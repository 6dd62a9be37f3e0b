"""The past that a continuation stands on: is every key and value of it what its ids give?

The logits of a few steps do not show a token to which none of them attends: it sleeps until somebody asks
for it. The uninterrupted run holds the same past, computed by itself, so the two are held side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.compare.spread import KINDS, beyond, said, spread, told
from harness.model.loaded import Loaded
from harness.pipeline.noise import named_floors, noise
from harness.pipeline.restore import MARGIN
from harness.snapshot.state import LayerState, State

# Of all tokens so far, shared; empty where a path is not to be compared.
Past = tuple[LayerState, ...]
Floors = list[dict[str, float]]
PARTS = ("key", "value")
ASLEEP = "what it goes on from is not what its ids give"


@dataclass(frozen=True)
class Sleeper:
    """The first number of a past that leaves the noise: `off` it is, `limit` is allowed. all_of: where none does, the
    first head whose numbers leave it together, in words."""

    part: str
    row: int
    head: int
    token: int
    layer: int
    off: float
    limit: float
    all_of: str = ""

    def __str__(self) -> str:
        if self.all_of:
            return f"{ASLEEP}: {self.all_of}"
        row = f", row {self.row}" if self.row else ""
        return (
            f"{ASLEEP}: the {self.part} of token {self.token} in layer "
            f"{self.layer}, head {self.head}{row} is off by {self.off:.3g}, rounding explains {self.limit:.3g}"
        )


def past_of(states: Sequence[State]) -> Past:
    """The layers of what a runner `committed`; empty where they are meant to be others than those of the ids:
    of a state that was edited or rounded on purpose, or came from another kind of device, and of branches."""
    if len(states) != 1:
        return ()
    (state,) = states
    form = state.documents["kv_format"]
    if any(form.get(key) for key in ("edited", "quantized", "rounded_to")):
        return ()
    device = state.documents.get("proof", {}).get("device", "cpu")
    return tuple(state.layers) if device == state.logits.device.type else ()


def floors(state: State, past: Past, again: Past, dtype: torch.dtype) -> Floors:
    """Per layer how far keys and values of two plain paths over the tokens of `state` are apart, one
    rounding of the largest at least; of half precision also as a whole."""
    if not again:
        return []
    eps = torch.finfo(dtype).eps
    measured: Floors = [{} for _ in past]
    for index, part, _, one, two, real in _pairs(state, past, again):
        measured[index][part] = max(float(_gap(one, two, real).max()), float(two.abs().max()) * eps)
        if told(dtype):
            measured[index] |= named_floors(part, [spread(one, two, real)], one.shape[2], dtype)
    return measured


def sleeper(
    loaded: Loaded, state: State, ours: Past, theirs: Past, floors: Floors
) -> Sleeper | None:
    """Where the past of a restored run is not that of the uninterrupted one, both over the tokens of
    `state`; None where it is, or where one of them has none.

    floors: from another plain path. What is beyond them is held against the noise of a whole prefill of
    its row, which takes longer to measure. Mutates nothing.
    """
    first = _first(state, ours, theirs, floors) if floors else None
    if first is None:
        return None
    ids = state.token_ids[first.row, state.attention_mask[first.row] != 0].to(loaded.device)
    measured = noise(loaded, ids[None])
    both = [a | b for a, b in zip(measured.tensors, measured.spread, strict=True)]
    return _first(state, ours, theirs, both)


def _first(
    state: State, ours: Past, theirs: Past, floors: Sequence[dict[str, float]]
) -> Sleeper | None:
    for index, part, start, one, two, real in _pairs(state, ours, theirs):
        gap = _gap(one, two, real)
        limit = MARGIN * floors[index].get(part, 0.0)
        wrong = (~(gap <= limit)).transpose(1, 2).nonzero()
        if len(wrong):
            row, token, head = wrong[0].tolist()
            off = float(gap[row, head, token])
            return Sleeper(part, row, head, start + token, index, off, limit)
    return _together(state, ours, theirs, floors)


def _together(
    state: State, ours: Past, theirs: Past, floors: Sequence[dict[str, float]]
) -> Sleeper | None:
    """The first head whose numbers leave the noise as a whole, where that was measured."""
    for index, part, start, one, two, real in _pairs(state, ours, theirs):
        floor = {kind: floors[index].get(f"{part} {kind}") for kind in KINDS}
        known = {kind: value for kind, value in floor.items() if value is not None}
        if len(known) < len(KINDS):
            continue
        seen = spread(one, two, real)
        if found := beyond(seen, known):
            kind, head = found
            off, limit = float(seen[kind][head]), known[kind]
            words = said(part, kind, head, index, off, limit)
            return Sleeper(part, 0, head, start, index, off, limit, words)
    return None


def _gap(one: torch.Tensor, two: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """`[batch, kv_heads, tokens]` the largest of each row, 0 at padding."""
    gap = (one.double() - two.double()).abs().amax(-1)
    return gap * real.to(gap)


def _pairs(
    state: State, ours: Past, theirs: Past
) -> Iterator[tuple[int, str, int, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """`(layer, part, first token, one, two, real)` of every key and value that both hold of the tokens of
    `state`: `[batch, kv_heads, tokens, head_dim]` of ours and of theirs; real: `[batch, 1, tokens]`, 0 at padding."""
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if not (mine.segments and other.segments):
            continue
        start = max(mine.seen - mine.kept, other.seen - other.kept)
        if start >= state.tokens:
            continue
        real = state.attention_mask[:, None, start:]
        for part in PARTS:
            one, two = (
                getattr(la, part)[
                    :, :, start - la.seen + la.kept : state.tokens - la.seen + la.kept
                ]
                for la in (mine, other)
            )
            if one.shape != two.shape:
                continue
            yield index, part, start, one, two.to(one.device), real.to(one.device) != 0
