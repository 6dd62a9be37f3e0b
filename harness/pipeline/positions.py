"""At which positions a cache was filled, and its keys at those that the mask counts.

A State counts the real tokens of a row from 0. A forward over a padded batch without `position_ids`
counts the padding too: all of a row stands further on, by one number. Rotary keys are moved back by it;
keys that depend on their position in any other way cannot be. Which it was, the last token says: fed
again, it reproduces its own keys and values where the past stands right.
"""

from dataclasses import replace
from typing import Any

import torch

from harness.capture import new_cache, positions_of, prefill
from harness.capture.layers import INDEXER, layers_of
from harness.errors import InputProblem, UnsupportedModel
from harness.model.loaded import Loaded
from harness.pipeline.noise import largest
from harness.pipeline.prune import moves
from harness.pipeline.restore import MARGIN, floors_now, replayed
from harness.snapshot.state import LayerState, Segment, State

PRUNED = (
    "Of a cache that your own code prunes, capture the whole one and give that state and the policy, a class below "
    "harness.prune.Policy, to harness.prune_state."
)
ASK = (
    "Give `position_ids` as the forward had them; for a new prefill use "
    "(attention_mask.cumsum(-1) - 1).clamp(min=0), as `generate` does."
)


def by_the_mask(loaded: Loaded, state: State, position_ids: Any = None) -> State:
    """`state`, whose positions are those of its mask, with its keys moved there from where they are.

    position_ids: `[batch or 1, tokens]` as they were sent; without, rows with padding are tried as the
    mask counts them and as counted through the padding. Raises InputProblem where neither explains the
    keys, UnsupportedModel where they cannot be moved. Mutates nothing.
    """
    told = position_ids is not None
    if not told and bool(state.attention_mask.all()):
        return state
    padding = (state.attention_mask == 0).sum(dim=1)
    ahead = _ahead(state, position_ids) if told else padding
    candidate = _moved(loaded, state, ahead) if told else state
    gap = _gap(loaded, candidate)
    if gap is None:
        return candidate
    limit = MARGIN * floors_now(loaded, state)["kv"]
    if gap <= limit:
        return candidate
    if not told:
        through = _moved(loaded, state, padding)
        if (gap := _gap(loaded, through)) is not None and gap <= limit:
            return through
        raise InputProblem(
            f"the last token, fed again, has other keys and values than the cache (off by {gap:.3g}, "
            f"allowed {limit:.3g}): neither counting the mask's tokens nor counting through the padding "
            f"explains it. Are ids and mask those that filled it? {ASK}"
        )
    raise InputProblem(
        f"the last token, fed again at these position_ids, has other keys and values than the cache (off by "
        f"{gap:.3g}, allowed {limit:.3g}). Are ids, mask and positions those that filled it?"
    )


def _ahead(state: State, position_ids: Any) -> torch.Tensor:
    """`[batch]`: by how much each row stands ahead of what its mask counts."""
    mask = state.attention_mask
    try:
        sent = torch.as_tensor(position_ids).to(mask).expand_as(mask)
    except (RuntimeError, TypeError, ValueError):
        raise InputProblem(
            f"position_ids {list(getattr(position_ids, 'shape', []))} does not fit input_ids {list(mask.shape)}."
        ) from None
    ahead = sent - positions_of(mask)
    if bool(((ahead != ahead[:, -1:]) & (mask != 0)).any()):
        raise InputProblem(
            "position_ids leave a gap between tokens of a row: only consecutive positions can be captured. "
            f"{PRUNED}"
        )
    return ahead[:, -1]


def _gap(loaded: Loaded, state: State) -> float | None:
    """How far the keys and values of the last token, fed again, are from those kept; where its past is
    not whole, how far from those of a prefill of all ids. None where no layer keeps any."""
    again = replayed(loaded, state)
    if again is not None:
        return again[1]
    ids, mask, cache = state.token_ids, state.attention_mask, new_cache(loaded)
    positions = positions_of(mask)
    prefill(loaded, ids, mask, positions, cache)
    pairs = zip(state.layers, layers_of(cache, positions), strict=True)
    gaps = [
        largest(kept[:, :, -1:] - fresh[:, :, -1:])
        for ours, theirs in pairs
        if ours.segments
        for kept, fresh in ((ours.key, theirs.key), (ours.value, theirs.value))
    ]
    return max(gaps, default=None)


def _moved(loaded: Loaded, state: State, ahead: torch.Tensor) -> State:
    """`state` with the keys of each row turned back by `ahead` `[batch]` positions."""
    if not bool(ahead.any()):
        return state
    furthest = replace(state, next_position=state.next_position + ahead.clamp(min=0))
    try:
        if any(name.startswith(INDEXER) for la in state.layers for name in la.recurrent):
            raise UnsupportedModel("an index over the keys knows their positions as well")
        how = moves(loaded, furthest)
    except UnsupportedModel:
        raise UnsupportedModel(
            "the cache was filled with positions counted through the padding (or from another start), and "
            f"this model's keys cannot be moved. {ASK}"
        ) from None
    layers = tuple(
        layer if turn is None or not layer.segments else _turned(layer, turn, ahead)
        for layer, turn in zip(state.layers, how, strict=True)
    )
    return replace(state, layers=layers)


def _turned(layer: LayerState, turn: Any, ahead: torch.Tensor) -> LayerState:
    at = layer.positions
    key = turn(layer.key, at + ahead[:, None], at)
    return replace(layer, segments=(Segment(key, layer.value, at),))
