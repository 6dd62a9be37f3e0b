"""`prune=heavy_hitter`: tokens that received most attention, and the most recent ones.

Source: H2O (Zhang et al. 2023). The founding documents call the score brightness.
"""

from math import inf

import torch

from harness.config import PruneConfig, within
from harness.prune.base import EVERY_QUERY, Policy, by_head
from harness.snapshot.state import LayerState


class HeavyHitter(Policy):
    """Accumulated attention over all queries, per KV head; `prune.recent` of the budget is a window.

    `prune.average`: per query that could see the token, so that being early is no merit."""

    observes = EVERY_QUERY

    def __init__(self, settings: PruneConfig):
        super().__init__(settings)
        within("prune.recent", settings.recent, 0, 1)

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        assert layer.received is not None
        recent = int(self.settings.recent * keep)
        newest = rank > rank[..., -1:] - recent
        total = layer.received.double().sum(-2)
        if self.settings.average:
            queries = layer.positions[..., -1:] + 1 - layer.positions
            total = total / by_head(queries, total)
        return total.masked_fill(by_head(newest, total), inf)
