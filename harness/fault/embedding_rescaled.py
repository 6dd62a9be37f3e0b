"""The table scaled by sqrt(width), as another family would expect it."""

import torch

from harness.fault.base import Fault, Target


class EmbeddingRescaled(Fault, element=2):
    def live(self, live: Target) -> None:
        table = live.model.get_input_embeddings().weight
        with torch.no_grad():
            table.mul_(table.shape[1] ** 0.5)
