"""`prune=keep_last`: the most recent tokens, as the founding toolkit does it."""

import torch

from harness.prune.base import Policy
from harness.snapshot.state import LayerState


class KeepLast(Policy):
    """A plain window: whatever came first is dropped first."""

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        return rank
