"""Pruning: score, choose, sort, gather. A policy supplies the score; everything else is this procedure.

The State is only read. What is dropped is dropped per layer, and per KV head where the policy scores
heads (or once for all layers with `prune.shared`), and the positions of what is kept are recorded,
never inferred from a length. Padding is kept only where a row has fewer real tokens than the budget.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import torch

from harness.config import PruneConfig
from harness.errors import ConfigProblem, InputProblem, UnsupportedModel
from harness.prune.budget import budget, budgets, protected
from harness.prune.choice import adaptive, highest, shared
from harness.snapshot.history import windowed
from harness.snapshot.state import LayerState, Segment, State

EVERY_QUERY = 0  # `Policy.observes`: one row that sums all queries
EXPECTED = -1  # one row of what queries to come are expected to give
MUST = 1e200  # what a policy's own infinity counts as; sums over layers stay finite
MAX_RUNS = 4  # a choice of at most so many runs stays views, one segment each


class Policy(ABC):
    """Decides what a layer keeps. settings: a PruneConfig; construction checks it.

    observes: how much attention `score` needs in `LayerState.received`: None for none, EVERY_QUERY
    for one row that sums all queries, N for one row per query of the last N, EXPECTED for one row of
    what queries yet to come are expected to give.
    """

    observes: int | None = None

    def __init__(self, settings: PruneConfig):
        self.settings = settings
        if settings.tokens is None and settings.ratio is None:
            raise ConfigProblem(
                f"prune={settings.name} needs a budget: give prune.tokens=N or prune.ratio=R."
            )

    def check(self) -> None:
        """Raise InputProblem for a declared budget that no state can meet: before there is one."""
        return

    @abstractmethod
    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        """`[batch, kept]`, or `[batch, kv_heads, kept]` where each KV head chooses for itself: how
        much each token of `layer` is worth; the `keep` highest stay.

        rank: int64, 0 for the first real token held, negative for padding: `[batch, kept]`, or
        `[batch, kv_heads, kept]` where the layer's heads hold different tokens already.
        """

    def prune(self, state: State) -> State:
        """A State whose layers hold what this policy keeps; positions stay `original`.

        Raises InputProblem for a budget that the state cannot meet, UnsupportedModel when the
        state holds nothing that could be pruned, or an index over what would be. Mutates nothing.
        """
        chosen = self.choose(state)
        layers = tuple(
            layer if index is None else gathered(layer, index)
            for layer, index in zip(state.layers, chosen, strict=True)
        )
        record = self.record(state)
        if windowed(state):  # which hold fewer tokens than were read
            record["tokens"] = state.tokens
        history = [*state.documents["kv_format"].get("pruned", []), record]
        return state.with_layers(layers, pruned=history)

    def choose(self, state: State) -> list[torch.Tensor | None]:
        """Per layer the kept indices in rising order, `[batch, keep]` or `[batch, kv_heads, keep]`
        (-1 for a place that stays empty); None where nothing is held."""
        s = self.settings
        if not any(layer.segments for layer in state.layers):
            raise UnsupportedModel(
                f"prune={s.name} has nothing to prune: this model keeps no keys and "
                "values. Use prune=none."
            )
        if any("indexer_keys_0" in layer.recurrent for layer in state.layers):
            raise UnsupportedModel(
                f"prune={s.name} cannot serve this model: it keeps an index over its keys, which does not "
                "shrink with them. Use prune=none."
            )
        protect, keeps = protected(s, state), budgets(s, state)
        scores = [
            self._scored(layer, keep, protect) if layer.segments else None
            for layer, keep in zip(state.layers, keeps, strict=True)
        ]
        if s.shared:
            scores = shared(state.layers, scores)
        choice = adaptive if s.budget == "adaptive" else highest
        return [
            None if score is None else choice(score, keep)
            for score, keep in zip(scores, keeps, strict=True)
        ]

    def allowed(self, state: State) -> list[int]:
        """The most real tokens that each layer may keep, on average over rows and heads."""
        return budgets(self.settings, state)

    def record(self, state: State) -> dict[str, Any]:
        """What the snapshot says about this pruning (JSON-able, part of element +3)."""
        s = self.settings
        return {
            "policy": s.name,
            "budget": {"tokens": s.tokens} if s.tokens is not None else {"ratio": s.ratio},
            "over": s.budget,
            "per_head": s.per_head,
            "from_tokens": state.kept_tokens,
            "kept_tokens": budget(s, state.kept_tokens),
            "protected": protected(s, state),
            "shared": s.shared,
            "positions": "original",
        }

    def _scored(self, layer: LayerState, keep: int, protect: int) -> torch.Tensor:
        """`score`, checked, in float64, with what must stay at infinity and padding at minus that."""
        if self.observes is not None and layer.received is None:
            raise UnsupportedModel(
                f"prune={self.settings.name} needs the attention that each token received, and "
                f"layer {layer.index} has none recorded. Use prune=knorm or sink_window."
            )
        positions = layer.positions
        kept = positions.shape[-1]
        real = positions >= 0
        before = torch.arange(kept, device=positions.device) - kept
        rank = torch.where(real, real.cumsum(-1) - 1, before)
        score = self.score(layer, rank, keep)
        score = self._by_head(layer, score.double())
        if score.dim() == 3 and positions.dim() == 2:
            positions = positions[:, None]
        score = score.clamp(max=MUST)  # below what is protected
        score = score.masked_fill((positions >= 0) & (positions < protect), inf)
        score = score.masked_fill(positions < 0, -inf)
        if missing := int(score.isnan().sum()):
            raise ConfigProblem(
                f"prune={self.settings.name} scored {missing} of {score.numel()} tokens of layer "
                f"{layer.index} as NaN, which is neither more nor less than another. Correct `score`."
            )
        return score

    def _by_head(self, layer: LayerState, score: torch.Tensor) -> torch.Tensor:
        """`score` as `prune.per_head` wants it. Raises ConfigProblem where that cannot be."""
        s, kept = self.settings, layer.kept
        batch, heads = layer.segments[0].key.shape[:2]
        if tuple(score.shape) not in ((batch, kept), (batch, heads, kept)):
            raise ConfigProblem(
                f"prune={s.name} scored layer {layer.index} as {list(score.shape)}; give "
                f"[batch, kept] = {[batch, kept]} or [batch, kv_heads, kept] = {[batch, heads, kept]}."
            )
        if score.dim() == 2 and (s.per_head or s.budget == "adaptive"):
            key = "prune.per_head=true" if s.per_head else "prune.budget=adaptive"
            raise ConfigProblem(
                f"{key} needs a policy that scores each KV head; prune={s.name} scores whole tokens. "
                "Use prune=keydiff, heavy_hitter, snapkv, tova, expected_attention or knorm."
            )
        if layer.per_head and (score.dim() == 2 or s.per_head is False):
            raise InputProblem(
                f"layer {layer.index} was pruned per KV head, so its heads hold different tokens, and "
                f"prune={s.name} {'scores' if score.dim() == 2 else 'with prune.per_head=false chooses'} "
                "whole tokens. Use a policy that scores each KV head, or prune the unpruned state."
            )
        return score.mean(1) if score.dim() == 3 and s.per_head is False else score


def by_head(mask: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    """`mask` `[batch, kept]` or `[batch, kv_heads, kept]`, so that it fits `score` of either form."""
    return mask[:, None] if mask.dim() < score.dim() else mask


def gathered(layer: LayerState, index: torch.Tensor) -> LayerState:
    """`layer` with only the tokens at `index` `[batch, keep]` or `[batch, kv_heads, keep]`, in that
    order. At an index of -1 nothing stays: zeros at a negative position, as padding is.

    A choice made of a few runs, alike in every row and head, stays views: one segment each (a segment
    that is kept whole stays the same object). Anything else is gathered into one new segment.
    """
    received, heads = layer.received, layer.segments[0].key.shape[1]
    index = _alike(index)
    runs = _runs(index)
    if runs is not None:
        segments = tuple(s for start, stop in runs for s in _sliced(layer.segments, start, stop))
    else:
        segments = (_picked(layer, index),)
    if received is not None:
        whole = received.dim() == 3  # summed over the heads: format 1
        if whole and index.dim() == 3:
            received, whole = received[:, None].expand(-1, heads, -1, -1), False
        at = index.clamp(min=0)[:, None] if index.dim() == 2 else index.clamp(min=0)[:, :, None]
        at = at if whole or index.dim() == 3 else at[:, None]
        received = received.gather(-1, at.expand(*received.shape[:-1], -1))
    return replace(layer, segments=segments, received=received)


def _alike(index: torch.Tensor) -> torch.Tensor:
    """`[batch, keep]` where every head chose the same, else `index` as it is."""
    if index.dim() == 3 and bool((index == index[:, :1]).all()):
        return index[:, 0]
    return index


def _picked(layer: LayerState, index: torch.Tensor) -> Segment:
    """One new segment of the tokens at `index`."""
    key, value, positions = layer.key, layer.value, layer.positions
    each = index if index.dim() == 3 else index[:, None]
    at = each.clamp(min=0)[..., None]
    picked = [t.gather(2, at.expand(-1, t.shape[1], -1, t.shape[3])) for t in (key, value)]
    if index.dim() == 3 and positions.dim() == 2:
        positions = positions[:, None].expand(-1, index.shape[1], -1)
    if index.dim() == 2 and positions.dim() == 3:
        index = index[:, None].expand(-1, positions.shape[1], -1)
    picked_positions = positions.gather(-1, index.clamp(min=0))
    empty = index < 0
    if bool(empty.any()):
        gap = (empty | (picked_positions < 0)).sum(-1, keepdim=True)
        place = torch.arange(index.shape[-1], device=index.device)
        picked_positions = torch.where(place < gap, place - gap, picked_positions)
        hole = empty[..., None] if empty.dim() == 3 else empty[:, None, :, None]
        picked = [t.masked_fill(hole, 0) for t in picked]
    return Segment(picked[0], picked[1], picked_positions)


def _runs(index: torch.Tensor) -> list[tuple[int, int]] | None:
    """`[(start, stop)]` when every row and head chooses the same few runs of neighbours, else None."""
    row = index[0]
    if index.dim() == 3 or bool((index < 0).any()) or not bool((index == row).all()):
        return None
    breaks = (row.diff() != 1).nonzero()[:, 0] + 1
    if breaks.numel() >= MAX_RUNS:
        return None
    edges = [0, *breaks.tolist(), row.shape[0]]
    return [(int(row[a]), int(row[b - 1]) + 1) for a, b in pairwise(edges)]


def _sliced(segments: Sequence[Segment], start: int, stop: int) -> list[Segment]:
    """Tokens `start` to `stop` of the segments, as views."""
    slices, before = [], 0
    for segment in segments:
        low, high = max(start - before, 0), min(stop - before, segment.tokens)
        before += segment.tokens
        if low >= high:
            continue
        slices.append(segment.cut(low, high))
    return slices
