"""The tail of a continuation: what would be stored of the tokens it was fed."""

from collections.abc import Sequence
from typing import Any

import torch

from harness.cache.base import ending
from harness.capture.layers import INDEXER
from harness.pipeline.noise import named
from harness.snapshot.state import LayerState, State

# Per layer by name: key and value `[rows, kv_heads, tokens, head_dim]` of what was fed (of a window
# what it still holds), and the recurrent state after it. Empty where a path is not to be compared.
Tail = tuple[dict[str, torch.Tensor], ...]
# Of all tokens so far, shared; empty where a path is not to be compared.
Past = tuple[LayerState, ...]


def committed(runner: Any) -> list[State]:
    """What a Runner would store of each of its branches; none where it went on from a state whose keys and
    values are meant to be others, a pruned or a quantized one. Mutates nothing."""
    branches = getattr(runner, "branches", 1)
    states = [runner.commit(b) for b in range(branches)] if branches > 1 else [runner.commit()]
    meant = any(state.pruned or state.quantized for state in (runner.state, *states))
    return [] if meant else states


def past_of(states: Sequence[State]) -> Past:
    """The layers of what a runner `committed`; empty for nothing and for branches."""
    return tuple(states[0].layers) if len(states) == 1 else ()


def tail_of(states: Sequence[State], tokens: int) -> Tail:
    """The tail of what was `committed` after `tokens` tokens were fed, copied; empty for nothing."""
    if not states:
        return ()
    each = [[_copied(ending(layer, tokens)) for layer in state.layers] for state in states]
    if not each[1:]:
        return tuple(each[0])
    return tuple(
        {name: torch.stack([la[name] for la in rows], 1).flatten(0, 1) for name in rows[0]}
        for rows in zip(*each, strict=True)
    )


def _copied(layer: LayerState) -> dict[str, torch.Tensor]:
    tensors = named(layer).items()
    return {name: t.clone() for name, t in tensors if t.numel() and not name.startswith(INDEXER)}
