"""The sampler's generator seeded anew, with another number, instead of restored."""

import torch

from harness.fault.base import Fault, Live


class GeneratorRestarted(Fault, element=13, bed="sampled"):
    why = "the distribution is the same; what is drawn from it is not"

    def live(self, live: Live) -> None:
        live.rng = torch.Generator().manual_seed(12345).get_state()
