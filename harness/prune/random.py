"""`prune=random`: the control. A policy that does no better than this knows nothing."""

import torch

from harness.prune.base import Policy
from harness.snapshot.state import LayerState


class Random(Policy):
    """Uniform scores from `prune.seed` and the layer's index, alike on every device."""

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        seed = self.settings.seed * 1_000_003 + layer.index + 7919 * layer.seen
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(rank.shape, generator=generator, dtype=torch.float64).to(rank.device)
