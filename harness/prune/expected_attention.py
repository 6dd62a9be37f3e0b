"""`prune=expected_attention`: what later queries can be expected to look at, and how much it gives.

Source: Expected Attention (Devoto et al. 2025). The expectation itself is taken while the model runs,
see capture/expected.py.
"""

from math import inf

import torch

from harness.prune.base import EXPECTED, Policy, by_head
from harness.snapshot.state import LayerState


class ExpectedAttention(Policy):
    """Expected attention times the norm of the value, per KV head; `prune.sinks` first tokens stay."""

    observes = EXPECTED

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        assert layer.received is not None
        norm = layer.value.double().norm(dim=-1)
        worth = by_head(layer.received.double().sum(-2), norm) * norm
        sinks = (rank >= 0) & (rank < min(self.settings.sinks, keep))
        return worth.masked_fill(by_head(sinks, worth), inf)
