"""`prune=random`: the control. A policy that does no better than this knows nothing."""

import torch

from harness.prune.base import Policy
from harness.snapshot.state import LayerState


class Random(Policy):
    """Uniform scores per KV head from `prune.seed` and the layer's index, alike on every device."""

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        shape = layer.key.shape[:3]
        seed = self.settings.seed * 1_000_003 + layer.index + 7919 * layer.seen
        generator = torch.Generator().manual_seed(seed)
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(rank.device)
