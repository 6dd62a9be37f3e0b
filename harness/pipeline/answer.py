"""What a state answers as it is: after pruning or quantizing, its logits are still those of all tokens in
full precision. Its last token, fed again over the rest of what it holds, gives its own."""

from dataclasses import replace

import torch

from harness.cache.library import Replay
from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.model.loaded import Loaded
from harness.pipeline.step import feed
from harness.prune.base import gathered
from harness.snapshot.state import LayerState, State


def answering(loaded: Loaded, state: State, cache: CacheConfig) -> State | None:
    """`state`, which is only read, with the logits `[batch, vocab]` that follow what it holds. Where no
    layer dropped a token or keeps codes, its last token also gets the keys and values that belong to them,
    so that the proof holds. None where the past of that token is not contained in `state`: a recurrent state, a
    window that has let go of tokens, nothing held beside it."""
    if state.tokens < 2 or (before := _without_last(state)) is None:
        return None
    if state.quantized:
        return replace(state, logits=_over(loaded, state, before))
    try:
        again = feed(loaded, before, state.token_ids[:, -1:], cache, None).state
    except UnsupportedModel:
        return None
    if any(layer.kept < layer.seen for layer in state.layers):
        return replace(state, logits=again.logits)
    layers = zip(again.layers, state.layers, strict=True)
    return again.with_layers(tuple(replace(new, received=old.received) for new, old in layers))


def over_itself(loaded: Loaded, state: State) -> torch.Tensor | None:
    """Logits `[batch, vocab]` of the last token of `state`, which is only read, fed again over what it holds,
    its own stored keys and values among that. None where that past is not contained in it."""
    before = _without_last(state) if state.tokens > 1 else None
    return None if before is None else _over(loaded, state, before)


def _over(loaded: Loaded, state: State, before: State) -> torch.Tensor:
    decoder = Replay(loaded, state, before, CacheConfig(name="cloned"))
    return decoder.step(state.token_ids[:, -1:])[:, -1]


def _without_last(state: State) -> State | None:
    layers = []
    for layer in state.layers:
        if not layer.segments or layer.recurrent or (layer.window and layer.seen >= layer.window):
            return None
        if (shorter := _shorter(layer, state.next_position - 1)) is None:
            return None
        layers.append(shorter)
    return replace(
        state,
        token_ids=state.token_ids[:, :-1],
        attention_mask=state.attention_mask[:, :-1],
        next_position=state.next_position - 1,
    ).with_layers(tuple(layers))


def _shorter(layer: LayerState, last: torch.Tensor) -> LayerState | None:
    """`layer` without the token at `last` `[batch]`, wherever a head holds it; None where one holds
    no other."""
    positions = layer.positions
    others = positions != last.view(-1, *[1] * (positions.dim() - 1))
    if not bool((others & (positions >= 0)).any(-1).all()):
        return None
    places = torch.arange(layer.kept, device=positions.device).expand_as(positions)
    index = places.where(others, -1).sort(-1).values[..., -int(others.sum(-1).max()) :]
    return replace(gathered(replace(layer, received=None), index), seen=layer.seen - 1)
