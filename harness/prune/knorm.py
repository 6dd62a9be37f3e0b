"""`prune=knorm`: tokens whose keys have the smallest norm.

Source: Devoto et al. 2024 ("A Simple and Effective L2 Norm-Based Strategy for KV Cache
Compression"): a small key norm goes with much attention. RoPE does not change the norm.
"""

import torch

from harness.prune.base import Policy
from harness.snapshot.state import LayerState


class KNorm(Policy):
    """Minus the L2 norm of the key, per KV head."""

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        return -layer.key.float().norm(dim=-1)
