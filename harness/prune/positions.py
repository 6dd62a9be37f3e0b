"""Where the kept tokens stand after pruning: `reindexed` closes the gaps, and turns the keys with them.

A rotary key at position p is R(p) k. Moved to position q it must become R(q - p) R(p) k; the
rotation is done as the model itself turns them (see attention/turns.py); keys that depend on their
position in any other way (learned positions) cannot be moved, and that is refused.
Source: StreamingLLM (Xiao et al. 2023) places kept tokens by their place in the cache.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from harness.attention.turns import Turn
from harness.snapshot.state import LayerState, Segment, State


def reindexed(state: State, how: Sequence[Turn | None]) -> State:
    """A State whose kept tokens stand at 0, 1, 2, ... without gaps, keys turned to match.

    `next_position` becomes the number of real tokens held (the most of any layer and head, per row);
    those that hold fewer end at the same place. Padding keeps negative positions. Mutates nothing.
    """
    counts = [(la.positions >= 0).sum(-1) for la in state.layers if la.segments]
    ends = torch.stack([n if n.dim() == 1 else n.amax(1) for n in counts])
    following = ends.amax(0).to(state.next_position.dtype)
    layers = tuple(
        layer if turn is None or not layer.segments else _moved(layer, turn, following)
        for layer, turn in zip(state.layers, how, strict=True)
    )
    pruned = [dict(p) for p in state.documents["kv_format"].get("pruned", [])]
    if pruned:
        pruned[-1]["positions"] = "reindexed"
    return replace(state, next_position=following).with_layers(layers, pruned=pruned)


def length_as_position(state: State) -> State:
    """The naive mistake, kept as a fault: positions counted anew, keys left as they were.

    What a script does that takes the length of a pruned cache for the next position.
    """
    still = Turn("still", torch.empty(0))
    return reindexed(state, [still if layer.segments else None for layer in state.layers])


def _moved(layer: LayerState, turn: Turn, following: torch.Tensor) -> LayerState:
    old = layer.positions
    at = torch.arange(layer.kept, device=old.device) - layer.kept
    ends = following.view(-1, *(1,) * (old.dim() - 1))
    new = torch.where(old >= 0, at + ends, at)
    if bool((new == old).all()):
        return layer
    key = turn(layer.key, old, torch.where(old >= 0, new, old))
    return replace(layer, segments=(Segment(key, layer.value, new),))
