"""Pruning: score, choose, sort, gather. A policy supplies the score; everything else is this procedure.

The State is only read. What is dropped is dropped per layer (or once for all layers with
`prune.shared`), and the positions of what is kept are recorded, never inferred from a length.
Padding is kept only where a row has fewer real tokens than the budget.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import torch

from harness.errors import ConfigProblem, InputProblem, UnsupportedModel
from harness.snapshot.state import LayerState, Segment, State

EVERY_QUERY = 0  # `Policy.observes`: one row that sums all queries
MUST = 1e200  # what a policy's own infinity counts as; sums over layers stay finite
MAX_RUNS = 4  # a choice of at most so many runs stays views, one segment each


class Policy(ABC):
    """Decides what a layer keeps. settings: a PruneConfig; construction checks it.

    observes: how much attention `score` needs in `LayerState.received`: None for none, EVERY_QUERY
    for one row that sums all queries, N for one row per query of the last N.
    """

    observes: int | None = None

    def __init__(self, settings: Any):
        self.settings = settings
        if settings.tokens is None and settings.ratio is None:
            raise ConfigProblem(
                f"prune={settings.name} needs a budget: give prune.tokens=N or prune.ratio=R."
            )

    @abstractmethod
    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        """`[batch, kept]`: how much each token of `layer` is worth; the `keep` highest stay.

        rank: `[batch, kept]` int64, 0 for the first real token held, negative for padding.
        """

    def prune(self, state: State) -> State:
        """A State whose layers hold what this policy keeps; positions stay `original`.

        Raises InputProblem for a budget that the state cannot meet, UnsupportedModel when the
        state holds nothing that could be pruned. Mutates nothing.
        """
        chosen = self.choose(state)
        layers = tuple(
            layer if index is None else gathered(layer, index)
            for layer, index in zip(state.layers, chosen, strict=True)
        )
        done = [*state.documents["kv_format"].get("pruned", []), self.record(state)]
        return state.with_layers(layers, pruned=done)

    def choose(self, state: State) -> list[torch.Tensor | None]:
        """Per layer the kept indices `[batch, keep]` in rising order; None where nothing is held."""
        if not any(layer.segments for layer in state.layers):
            raise UnsupportedModel(
                f"prune={self.settings.name} has nothing to prune: this model keeps no keys and "
                "values. Use prune=none."
            )
        protect = protected(self.settings, state)
        budgets = [self._budget(layer, state, protect) for layer in state.layers]
        scores = [
            self._scored(layer, keep, protect) if layer.segments else None
            for layer, keep in zip(state.layers, budgets, strict=True)
        ]
        if self.settings.shared:
            scores = _shared(state.layers, scores)
        return [
            None if score is None else _highest(score, keep)
            for score, keep in zip(scores, budgets, strict=True)
        ]

    def record(self, state: State) -> dict[str, Any]:
        """What the snapshot says about this pruning (JSON-able, part of element +3)."""
        s = self.settings
        return {
            "policy": s.name,
            "budget": {"tokens": s.tokens} if s.tokens is not None else {"ratio": s.ratio},
            "from_tokens": state.kept_tokens,
            "kept_tokens": budget(s, state.kept_tokens),
            "protected": protected(s, state),
            "shared": s.shared,
            "positions": "original",
        }

    def _budget(self, layer: LayerState, state: State, protect: int) -> int:
        if not layer.segments:
            return 0
        whole = budget(self.settings, state.kept_tokens)
        ratio = self.settings.tokens is None
        keep = budget(self.settings, layer.kept) if ratio else min(whole, layer.kept)
        inside = int(((layer.positions >= 0) & (layer.positions < protect)).sum(1).max())
        if inside > keep:
            raise InputProblem(
                f"the prune budget is {keep} tokens, but prune.protect keeps the first {inside}. "
                "Give a larger prune.tokens or prune.ratio, or protect fewer."
            )
        return keep

    def _scored(self, layer: LayerState, keep: int, protect: int) -> torch.Tensor:
        positions = layer.positions
        rank = (positions >= 0).cumsum(1) - 1
        rank = torch.where(positions >= 0, rank, torch.arange(positions.shape[1], device=rank.device) - positions.shape[1])  # fmt: skip
        if self.observes is not None and layer.received is None:
            raise UnsupportedModel(
                f"prune={self.settings.name} needs the attention that each token received, and "
                f"layer {layer.index} has none recorded. Use prune=knorm or sink_window."
            )
        score = self.score(layer, rank, keep).double()
        score = score.clamp(max=MUST)  # below what is protected
        score = score.masked_fill((positions >= 0) & (positions < protect), inf)
        return score.masked_fill(positions < 0, -inf)


def budget(settings: Any, held: int) -> int:
    """Tokens to keep of `held`. Raises InputProblem for a budget that is empty or more than there is."""
    if settings.tokens is not None:
        if settings.tokens > held:
            raise InputProblem(
                f"prune.tokens={settings.tokens} is more than the {held} tokens the cache holds. "
                f"Give {held} or fewer, or prune=none."
            )
        return settings.tokens
    keep = round(settings.ratio * held)
    if keep < 1:
        raise InputProblem(
            f"prune.ratio={settings.ratio} of {held} tokens keeps none. Give a larger ratio."
        )
    return keep


def protected(settings: Any, state: State) -> int:
    """Leading positions that are never dropped; `prefix` is what stands before the user's words."""
    if settings.protect == "prefix":
        return len(state.documents.get("prompt_meta", {}).get("prefix_ids", []))
    return int(settings.protect)


def gathered(layer: LayerState, index: torch.Tensor) -> LayerState:
    """`layer` with only the tokens at `index` `[batch, keep]`, in that order.

    A choice made of a few runs, alike in every row, stays views: one segment each (a segment that
    is kept whole stays the same object). Anything else is gathered into one new segment.
    """
    runs = _runs(index)
    if runs is not None:
        segments = tuple(s for start, stop in runs for s in _sliced(layer.segments, start, stop))
    else:
        at = index[:, None, :, None]
        key, value = layer.key, layer.value
        segments = (
            Segment(
                key.gather(2, at.expand(-1, key.shape[1], -1, key.shape[3])),
                value.gather(2, at.expand(-1, value.shape[1], -1, value.shape[3])),
                layer.positions.gather(1, index),
            ),
        )
    received = layer.received
    if received is not None:
        received = received.gather(2, index[:, None].expand(-1, received.shape[1], -1))
    return replace(layer, segments=segments, received=received)


def _shared(layers: Sequence[LayerState], scores: list[torch.Tensor | None]) -> list[Any]:
    """The mean score over the layers that hold the same tokens, given to each of them."""
    groups: list[tuple[torch.Tensor, list[int]]] = []
    for i, layer in enumerate(layers):
        if scores[i] is None:
            continue
        held = layer.positions
        for positions, members in groups:
            if positions.shape == held.shape and bool((positions == held).all()):
                members.append(i)
                break
        else:
            groups.append((held, [i]))
    shared = list(scores)
    for _, members in groups:
        mean = torch.stack([scores[i] for i in members]).mean(0)  # type: ignore[misc]
        for i in members:
            shared[i] = mean
    return shared


def _highest(score: torch.Tensor, keep: int) -> torch.Tensor:
    """Indices of the `keep` highest, in rising order; of equals the later token stays."""
    last = score.shape[1] - 1
    order = last - score.flip(1).argsort(dim=1, descending=True, stable=True)
    return order[:, :keep].sort(dim=1).values


def _runs(index: torch.Tensor) -> list[tuple[int, int]] | None:
    """`[(start, stop)]` when every row chooses the same few runs of neighbours, else None."""
    row = index[0]
    if index.shape[0] > 1 and not bool((index == row).all()):
        return None
    breaks = (row.diff() != 1).nonzero()[:, 0] + 1
    if breaks.numel() >= MAX_RUNS:
        return None
    edges = [0, *breaks.tolist(), row.shape[0]]
    return [(int(row[a]), int(row[b - 1]) + 1) for a, b in pairwise(edges)]


def _sliced(segments: Sequence[Segment], start: int, stop: int) -> list[Segment]:
    """Tokens `start` to `stop` of the segments, as views."""
    found, before = [], 0
    for segment in segments:
        low, high = max(start - before, 0), min(stop - before, segment.tokens)
        before += segment.tokens
        if low >= high:
            continue
        found.append(segment.cut(low, high))
    return found
