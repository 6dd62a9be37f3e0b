"""The past that a continuation stands on: is every key and value of it what its ids give?

The logits of a few steps do not show a token to which none of them attends: it sleeps until somebody asks
for it. The uninterrupted run holds the same past, computed by itself, so the two are held side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.model.loaded import Loaded
from harness.pipeline.noise import noise
from harness.pipeline.restore import MARGIN
from harness.snapshot.state import LayerState, State

# Of all tokens so far, shared; empty where a path is not to be compared.
Past = tuple[LayerState, ...]
Floors = list[dict[str, float]]
PARTS = ("key", "value")
ASLEEP = "what it goes on from is not what its ids give"


@dataclass(frozen=True)
class Sleeper:
    """The first number of a past that leaves the noise: `off` it is, `limit` is allowed."""

    part: str
    row: int
    head: int
    token: int
    layer: int
    off: float
    limit: float

    def __str__(self) -> str:
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
    rounding of the largest at least."""
    if not again:
        return []
    eps = torch.finfo(dtype).eps
    measured: Floors = [{} for _ in past]
    for index, part, _, gap, scale in _pairs(state, past, again):
        measured[index][part] = max(float(gap.max()), scale * eps)
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
    return _first(state, ours, theirs, noise(loaded, ids[None]).tensors)


def _first(
    state: State, ours: Past, theirs: Past, floors: Sequence[dict[str, float]]
) -> Sleeper | None:
    for index, part, start, gap, _ in _pairs(state, ours, theirs):
        limit = MARGIN * floors[index].get(part, 0.0)
        wrong = (~(gap <= limit)).transpose(1, 2).nonzero()
        if len(wrong):
            row, token, head = wrong[0].tolist()
            off = float(gap[row, head, token])
            return Sleeper(part, row, head, start + token, index, off, limit)
    return None


def _pairs(
    state: State, ours: Past, theirs: Past
) -> Iterator[tuple[int, str, int, torch.Tensor, float]]:
    """`(layer, part, first token, gaps, largest)` of every key and value that both hold of the tokens of
    `state`. gaps: `[batch, kv_heads, tokens]`, 0 at padding."""
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
            two = two.to(one.device)
            gap = (one.double() - two.double()).abs().amax(-1)
            yield index, part, start, gap * real.to(gap), float(two.abs().max())
