"""What every task does to prune a State: the policy that the configuration declares, its attention
scores where it needs them, and where the kept tokens stand afterwards."""

import time
from dataclasses import replace
from typing import Any

import torch

from harness.capture import keys_alone
from harness.capture.observe import observe_again
from harness.prune.base import Policy
from harness.prune.positions import Turn, reindexed, turns
from harness.prune.registry import policy
from harness.snapshot.state import State


def policy_of(settings: Any) -> Policy | None:
    """The policy of a PruneConfig; None for `prune=none`."""
    return None if settings.name == "none" else policy(settings)


def observes(settings: Any) -> int | None:
    """What the capture has to record for the policy; see `Policy.observes`."""
    chosen = policy_of(settings)
    return None if chosen is None else chosen.observes


def pruned(session: Any, state: State) -> State:
    """The State the prune policy leaves (the same object under `prune=none`).

    Attention that was not recorded during the capture is recomputed from the token buffer.
    Sets `times["prune"]`, without that recomputation.
    """
    chosen = policy_of(session.cfg.prune)
    session.times["prune"] = 0.0
    if chosen is None:
        return state
    session.say.stage(f"prune {session.cfg.prune.name}")
    if chosen.observes is not None and not observed(state):
        state = observe_again(session.loaded, state, chosen.observes)
    how = moves(session.loaded, state) if session.cfg.prune.positions == "reindexed" else None
    start = time.perf_counter()
    small = chosen.prune(state)
    if how is not None:
        small = reindexed(small, how)
    session.times["prune"] = time.perf_counter() - start
    session.say.done(f"{small.kept_tokens} of {state.kept_tokens} tokens kept")
    return without_scores(small)


def observed(state: State) -> bool:
    """Whether the layers that hold tokens carry the attention these received."""
    return all(layer.received is not None for layer in state.layers if layer.segments)


def without_scores(state: State) -> State:
    """`state` without recorded attention: once pruned, a snapshot has no use for it."""
    if all(layer.received is None for layer in state.layers):
        return state
    return state.with_layers(tuple(replace(layer, received=None) for layer in state.layers))


def moves(loaded: Any, state: State) -> list[Turn | None]:
    """How each layer's keys turn with position, for `reindexed`. Raises UnsupportedModel."""
    last = int(state.next_position.max()) - 1
    if loaded.max_positions is not None:
        last = min(last, loaded.max_positions - 1)
    token = int(state.token_ids[0, -1])
    with torch.no_grad():
        return turns(loaded.model, lambda p: keys_alone(loaded, token, p), max(last, 1))
