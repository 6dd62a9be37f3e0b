"""`prune=tova`: what the last query looks at.

Source: TOVA (Oren et al. 2024), which averages over all heads: that is `prune.per_head=false`.
"""

from math import inf

import torch

from harness.prune.base import Policy, by_head
from harness.snapshot.state import LayerState


class TOVA(Policy):
    """Attention of the last token, per KV head; its own key and value always stay."""

    observes = 1

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        assert layer.received is not None
        weights = layer.received[..., -1, :].double()
        return weights.masked_fill(by_head(rank == rank[..., -1:], weights), inf)
