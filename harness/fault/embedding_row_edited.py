"""The embedding of one token, the next one to be read, was edited."""

import torch

from harness.fault.base import Fault, Target


class EmbeddingRowEdited(Fault, element=2):
    def live(self, live: Target) -> None:
        table = live.model.get_input_embeddings().weight
        word = live.tokenizer(" what", add_special_tokens=False)["input_ids"][-1]
        with torch.no_grad():
            table[word] += 0.5 * table.std()
