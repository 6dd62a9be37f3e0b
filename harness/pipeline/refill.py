"""A cache of somebody's own, filled once more: are its keys and values those of the ids that came with it?

A prefill of the same ids says so, of every layer that it covers: of all tokens up to WHOLE, and wherever the
library's own logits need one anyway (windows, recurrent layers). A longer cache is compared in its first
WHOLE tokens and in its last one, which is fed again over all that lies before it.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any
from weakref import WeakKeyDictionary

import torch

from harness.cache.base import check_fit
from harness.capture import new_cache, positions_of, prefill
from harness.capture.layers import INDEXER, layers_of
from harness.errors import InputProblem
from harness.model.loaded import Loaded
from harness.pipeline.noise import Noise, largest, noise
from harness.pipeline.restore import MARGIN, PROBE, one_step_back, replayed
from harness.snapshot.state import LayerState, State

WHOLE = 128  # tokens of a row that are computed again
_known: WeakKeyDictionary[Any, tuple[int, Noise]] = WeakKeyDictionary()
Gap = tuple[float, float, str, int]  # how far off, what is allowed, where, and in which row


def refilled(loaded: Loaded, state: State) -> torch.Tensor | None:
    """The logits `[batch, vocab]` of the last token, where all of `state` was computed again; else None.

    Raises InputProblem where keys, values or recurrent state are further from those of its ids, mask
    and positions than `MARGIN` times the noise of this model. Mutates nothing.
    """
    check_fit(loaded, state)
    switched = loaded.switch is not None and state.tokens > loaded.switch
    every = one_step_back(state) is None or switched  # factors that switch need all tokens
    count = state.tokens if every else min(state.tokens, WHOLE)
    ids, mask = state.token_ids[:, :count], state.attention_mask[:, :count]
    cache, positions = new_cache(loaded), positions_of(mask)
    logits = prefill(loaded, ids, mask, positions, cache)[:, -1]
    fresh = layers_of(cache, positions)
    row = int(mask.sum(1).argmax())
    gap = _beyond(state, fresh, count, _usual(loaded, ids[row], mask[row]).tensors)
    if gap is not None:  # the noise of more tokens is larger, and takes longer to measure
        row = gap[3]
        floors = _noise(loaded, ids[row], mask[row], WHOLE).tensors
        gap = _beyond(state, fresh, count, floors)
    if gap is not None:
        _refuse(state, *gap)
    if count == state.tokens:
        return logits
    again = replayed(loaded, state)
    if again is not None:
        limit = MARGIN * _usual(loaded, ids[row], mask[row]).kv
        if not again[1] <= limit:
            limit = MARGIN * _noise(loaded, ids[row], mask[row], WHOLE).kv
        if not again[1] <= limit:
            _refuse(state, again[1], limit, "the last token", 0)
    return None


def _refuse(state: State, off: float, limit: float, where: str, row: int) -> None:
    padded = bool((state.attention_mask == 0).any())
    mend = "" if padded else " A padded batch needs its `attention_mask` too."
    far = (
        "is NaN or infinite" if not isfinite(off) else f"is off by {off:.3g} (allowed {limit:.3g})"
    )
    raise InputProblem(
        f"the cache is not what these ids give: {where} {far}. Give "
        "the model and exactly the ids that filled it, and the `position_ids` of the forward where they did not "
        f"count from 0.{mend} Where they are those and the cache was changed since: strict=False takes it as it is, and "
        "harness.judge says what is wrong with it."
    )


def _misshapen(layer: int, part: str, mine: torch.Tensor, new: torch.Tensor) -> str:
    """mine, new: `[batch, kv_heads, tokens, head_dim]` of the cache, and as the model makes them."""
    heads, wide = new.shape[1::2]
    return (
        f"the cache is of another model: its {part}s of layer {layer} have {mine.shape[1]} KV heads of {mine.shape[3]}, "
        f"this model's {heads} of {wide}. Give the model that filled it."
    )


def _noise(loaded: Loaded, ids: torch.Tensor, mask: torch.Tensor, most: int) -> Noise:
    """Over the first `most` real tokens of one row."""
    real = ids[mask != 0][:most]
    return noise(loaded, (real if len(real) else ids[:1])[None])


def _usual(loaded: Loaded, ids: torch.Tensor, mask: torch.Tensor) -> Noise:
    """The noise of a few tokens, measured once per model and its weights: a cache that is beyond them
    is held against those of its own tokens."""
    written = sum(parameter._version for parameter in loaded.model.parameters())
    known = _known.get(loaded.model)
    if known is None or known[0] != written:
        known = written, _noise(loaded, ids, mask, PROBE)
        _known[loaded.model] = known
    return known[1]


def _beyond(
    state: State, fresh: Sequence[LayerState], count: int, floors: Sequence[dict[str, float]]
) -> Gap | None:
    """The first layer of `state` that is further from `fresh`, its first `count` tokens computed again,
    than the noise allows; None where all are near. Raises InputProblem where one has other heads."""
    for ours, theirs, floor in zip(state.layers, fresh, floors, strict=False):
        if ours.segments and theirs.segments:
            start = max(state.tokens - ours.kept, count - theirs.kept)
            real = state.attention_mask[:, start:count] != 0
            for part in ("key", "value"):
                mine, new = getattr(ours, part), getattr(theirs, part)
                if mine.shape[1::2] != new.shape[1::2]:
                    raise InputProblem(_misshapen(ours.index, part, mine, new))
                first, other = state.tokens - ours.kept, count - theirs.kept
                mine, new = mine[:, :, start - first : count - first], new[:, :, start - other :]
                apart = (mine.double() - new.double()).abs().amax((1, 3))
                limit = MARGIN * floor[part]
                wrong = (~(apart <= limit) & real).nonzero()
                if len(wrong):
                    row, token = wrong[0].tolist()
                    off = float(apart[row, token].detach())
                    where = f"the {part} of token {start + token} in row {row}, layer {ours.index},"
                    return off, limit, where, row
        if count < state.tokens:
            continue
        for name, tensor in ours.recurrent.items():
            if name.startswith(INDEXER) or name not in theirs.recurrent or name not in floor:
                continue
            off, limit = (
                largest(tensor.double() - theirs.recurrent[name].double()),
                MARGIN * floor[name],
            )
            if not off <= limit:
                return off, limit, f"the {name} of layer {ours.index}", 0
    return None
