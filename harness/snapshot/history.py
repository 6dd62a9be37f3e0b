"""What a State tells of what was done to it: how much of the past it is without, since when, and whether it holds
codes."""

from typing import Any

from harness.snapshot.state import State
from harness.snapshot.words import on_average


def windowed(state: State) -> bool:
    """Whether every layer that holds tokens has a window."""
    return all(layer.window for layer in state.layers if layer.segments)


def reduced(state: State) -> bool:
    """Whether it is `pruned`, or was, and its windows are full again of tokens that were read since: these saw only
    what was left of the past."""
    first = (state.documents.get("kv_format", {}).get("pruned") or [{}])[0]
    full = windowed(state) and first.get("tokens", state.tokens) < state.tokens
    return state.pruned or full


def coded(state: State) -> dict[str, Any]:
    """The block of a record that says that the state holds codes; what they cost, only the run knows that made them.
    Empty for one without codes."""
    return {"quantization": {"of": "a state"}} if state.quantized else {}


def since(state: State) -> int:
    """How many tokens were read over a whole past; those after them saw what a pruning left of it."""
    history = state.documents["kv_format"].get("pruned")
    if not history or not reduced(state):
        return state.tokens
    if (
        windowed(state) and "at" not in history[0]
    ):  # an older one does not say how many had been read
        return int(history[0].get("tokens", state.tokens))
    return int(history[0].get("from_tokens", 0))


def tokens_held(state: State) -> tuple[int, float]:
    """How many tokens layers without a window (all, where each has one) hold at most and on average over their KV heads;
    of a batch the row that holds the most. A layer that has nothing but a recurrent state does not count."""
    holding = [layer for layer in state.layers if layer.segments]
    holding = [layer for layer in holding if layer.window is None] or holding
    many = [
        (layer.positions >= 0).sum(-1).amax(0).double().mean().item()
        if layer.per_head
        else float(layer.kept)
        for layer in holding
    ]
    return state.kept_tokens, sum(many) / len(many) if many else 0.0


def kept(state: State) -> str:
    """`97 kept`; of layers and heads that hold other numbers `79 kept on average, at most 97`."""
    return on_average(*tokens_held(state), " kept")
