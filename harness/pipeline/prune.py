"""What every task does to prune a State: the policy that the configuration declares, its attention
scores where it needs them, and where the kept tokens stand afterwards."""

from dataclasses import replace
from typing import Any

import torch

from harness.attention.turns import Turn, turns
from harness.capture import keys_alone
from harness.capture.observe import observe_again
from harness.config import PruneConfig
from harness.errors import ConfigProblem
from harness.model.loaded import Loaded
from harness.prune.base import Policy
from harness.prune.registry import policy
from harness.snapshot.history import tokens_held
from harness.snapshot.state import State
from harness.snapshot.words import on_average

LONG = 400  # tokens of a text that are told one by one


def policy_of(settings: PruneConfig) -> Policy | None:
    """The policy of a PruneConfig; None for `prune=none`."""
    if settings.name == "none":
        return None
    chosen = policy(settings)
    chosen.check()
    return chosen


def pruned(policy: Policy, state: State) -> State:
    """What `policy` leaves of `state`. Raises ConfigProblem where that is more than its budget, as a
    policy from outside may: its figures would stand under a budget that it did not keep."""
    small = policy.prune(state)
    for layer, most in zip(small.layers, policy.allowed(state), strict=True):
        if not layer.segments:
            continue
        kept = float((layer.positions >= 0).sum(-1).double().mean())
        if kept > most:
            raise ConfigProblem(
                f"prune={policy.settings.name} kept {kept:g} tokens in layer {layer.index}, and its "
                f"budget is {most}. Correct the policy: `score` says which tokens stay, not how many."
            )
    return small


def observes(settings: PruneConfig) -> int | None:
    """What the capture has to record for the policy; see `Policy.observes`."""
    chosen = policy_of(settings)
    return None if chosen is None else chosen.observes


def observed(state: State) -> bool:
    """Whether the layers that hold tokens carry the attention these received."""
    return all(layer.received is not None for layer in state.layers if layer.segments)


def scored(loaded: Loaded, policy: Policy, state: State) -> State:
    """`state` with the attention that `policy` needs: as it was recorded, or recomputed from the token
    buffer."""
    if policy.observes is None or observed(state):
        return state
    return observe_again(loaded, state, policy.observes)


def without_scores(state: State) -> State:
    """`state` without recorded attention: once pruned, a snapshot has no use for it."""
    if all(layer.received is None for layer in state.layers):
        return state
    return state.with_layers(tuple(replace(layer, received=None) for layer in state.layers))


def shrunk(small: State, state: State) -> str:
    """What a pruning left of `state`: `48 of 97 tokens kept on average, at most 86`."""
    return on_average(*tokens_held(small), f" of {state.kept_tokens:,} tokens kept")


def held(state: State, tokenizer: Any) -> dict[str, Any]:
    """Of the first row of a pruned state every token's text and in how many KV heads, of all layers, it is held;
    of a long text both ends, and how many are left out between; how many tokens a head holds in the mean. Layers with a window say nothing unless all
    have one. Empty where positions were counted anew, so that tokens cannot be found in the buffer."""
    from harness.tokenizer.pieces import pieces

    counted, heads = torch.zeros(state.tokens, dtype=torch.int64), 0
    before = state.tokens - int(state.attention_mask[0].sum())  # padding on the left
    holding = [layer for layer in state.layers if layer.segments]
    holding = [layer for layer in holding if not layer.window] or holding
    if int(state.next_position[0]) != state.tokens - before or not holding:
        return {}
    for layer in holding:
        many, at = int(layer.key.shape[1]), layer.positions[0].cpu()
        heads += many
        at = at.expand(many, -1).flatten()
        at = at[at >= 0] + before
        counted.index_add_(0, at, torch.ones_like(at))
    ids, held = state.token_ids[0, before:].tolist(), counted[before:].tolist()
    left = max(len(ids) - LONG, 0)
    middle = slice(LONG // 2, LONG // 2 + left)
    del ids[middle], held[middle]
    told = {"tokens": pieces(tokenizer, ids), "held": held, "heads": heads, "left_out": left}
    return told | {"mean": int(counted.sum()) / heads}


def moves(loaded: Loaded, state: State) -> list[Turn | None]:
    """How each layer's keys turn with position, for `reindexed`. Raises UnsupportedModel."""
    last = int(state.next_position.max()) - 1
    if loaded.max_positions is not None:
        last = min(last, loaded.max_positions - 1)
    token = int(state.token_ids[0, -1])
    with torch.no_grad():
        return turns(loaded.model, lambda p: keys_alone(loaded, token, p), max(last, 1))
