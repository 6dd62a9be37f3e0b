"""Embeddings out of step with the tokenizer: every row moved by one."""

import torch

from harness.fault.base import Fault, Target


class EmbeddingRowsShifted(Fault, element=2):
    def live(self, live: Target) -> None:
        table = live.model.get_input_embeddings().weight
        with torch.no_grad():
            table.copy_(table.roll(1, dims=0))
