"""`prune=snapkv`: what the last queries look at, smoothed over neighbours, and those queries' own tokens.

Source: SnapKV (Li et al. 2024).
"""

from math import inf

import torch

from harness.config import PruneConfig, at_least
from harness.prune.base import Policy, by_head
from harness.snapshot.state import LayerState


class SnapKV(Policy):
    """The last `prune.window` queries vote (never more than half the budget, so that votes count).

    Votes are counted per KV head and averaged over `prune.pool` neighbours; tokens of the observation window always stay.
    """

    def __init__(self, settings: PruneConfig):
        super().__init__(settings)
        at_least("prune.window", settings.window, 1)
        at_least("prune.pool", settings.pool, 1)
        self.observes = settings.window

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        assert layer.received is not None
        window = min(self.settings.window, max(keep // 2, 1))
        votes = layer.received[..., -window:, :].double().sum(-2)
        votes = votes.masked_fill(by_head(rank < 0, votes), 0.0)
        observed = by_head(rank > rank[..., -1:] - window, votes)
        votes = votes.masked_fill(observed, 0.0)
        pool = self.settings.pool
        left = (pool - 1) // 2
        padded = torch.nn.functional.pad(votes, (left, pool - 1 - left))
        smooth = torch.nn.functional.avg_pool1d(padded.flatten(0, -2)[:, None], pool, 1)
        return smooth.view(votes.shape).masked_fill(observed, inf)
