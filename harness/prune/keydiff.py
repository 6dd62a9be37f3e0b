"""`prune=keydiff`: tokens whose keys are least like the others.

Source: KeyDiff (Park et al. 2025): keys that differ from the mean direction receive most attention.
Knows no query, so it does not depend on what is asked next.
"""

import torch

from harness.prune.base import Policy, by_head
from harness.snapshot.state import LayerState


class KeyDiff(Policy):
    """Minus the cosine between a key and the mean of all normalized keys, per KV head."""

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        key = layer.key.float()
        real = by_head(rank >= 0, key[..., 0])[..., None]
        unit = torch.nn.functional.normalize(key, dim=-1)
        anchor = (unit * real).sum(2, keepdim=True)
        return -torch.cosine_similarity(key, anchor, dim=-1)
