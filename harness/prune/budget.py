"""How many tokens a layer keeps: the budget, what of it is protected, and how layers share it."""

from harness.config import PruneConfig
from harness.errors import InputProblem
from harness.snapshot.state import LayerState, State

LOCAL = 8  # pyramid: tokens that every layer keeps, whatever its share (the paper's alpha)
STEEPNESS = 20  # pyramid: the lowest share is the mean over this (the paper's beta)


def budget(settings: PruneConfig, tokens: int) -> int:
    """How many of `tokens` to keep. Raises InputProblem for a budget that is empty or too large."""
    if settings.tokens is not None:
        if settings.tokens > tokens:
            raise InputProblem(
                f"prune.tokens={settings.tokens} is more than the {tokens} tokens the cache holds. "
                f"Give {tokens} or fewer, or prune=none."
            )
        return settings.tokens
    assert settings.ratio is not None  # a policy has one of the two
    keep = round(settings.ratio * tokens)
    if keep < 1:
        raise InputProblem(
            f"prune.ratio={settings.ratio} of {tokens} tokens keeps none. Give a larger ratio."
        )
    return keep


def protected(settings: PruneConfig, state: State) -> int:
    """Leading positions that are never dropped; `prefix` is what stands before the user's words."""
    if settings.protect == "prefix":
        return len(state.documents.get("prompt_meta", {}).get("prefix_ids", []))
    return int(settings.protect)


def budgets(settings: PruneConfig, state: State) -> list[int]:
    """Tokens that each layer keeps per KV head; 0 where it holds none. Under `adaptive` this is the
    mean over the heads. Raises InputProblem where what is protected does not fit."""
    protect = protected(settings, state)
    keeps = [_budget(settings, layer, state) for layer in state.layers]
    if settings.budget == "pyramid":
        keeps = _pyramid(state.layers, keeps, protect)
    for layer, keep in zip(state.layers, keeps, strict=True):
        if not layer.segments:
            continue
        positions = layer.positions
        inside = int(((positions >= 0) & (positions < protect)).sum(-1).max())
        if inside > keep:
            raise InputProblem(
                f"the prune budget is {keep} tokens, but prune.protect keeps the first {inside}. "
                "Give a larger prune.tokens or prune.ratio, or protect fewer."
            )
    return keeps


def _budget(settings: PruneConfig, layer: LayerState, state: State) -> int:
    if not layer.segments:
        return 0
    if settings.tokens is None:
        return budget(settings, layer.kept)
    return min(budget(settings, state.kept_tokens), layer.kept)


def _pyramid(layers: tuple[LayerState, ...], keeps: list[int], protect: int) -> list[int]:
    """The budgets of the layers that look back on everything, falling from the first to the last by
    equal steps, their sum unchanged. Source: PyramidKV (Cai et al. 2024): lower layers gather from
    everywhere, higher ones attend to a few tokens."""
    full = [la.index for la in layers if la.segments and la.window is None]
    if len(full) < 2:
        return keeps
    mean, most = keeps[full[0]], min(layers[i].kept for i in full)
    local = min(max(LOCAL, protect), mean)
    lowest = local + (mean - local) / STEEPNESS
    highest = min(2 * mean - lowest, most)
    lowest = 2 * mean - highest
    step, total, assigned = (highest - lowest) / (len(full) - 1), 0.0, 0
    shared = list(keeps)
    for number, index in enumerate(full):
        total += highest - number * step
        shared[index] = round(total) - assigned
        assigned += shared[index]
    return shared
