"""The vocabulary was enlarged by eight rows after the save."""

import torch

from harness.fault.base import Fault, Target


class VocabularyResized(Fault, element=2):
    why = "the known tokens score as before, but sampling now has eight more to draw from"

    def live(self, live: Target) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            live.model.resize_token_embeddings(live.model.config.vocab_size + 8)
