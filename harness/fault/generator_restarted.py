"""The sampler's generator seeded anew, with another number, instead of restored."""

import torch

from harness.fault.base import Fault, Target


class GeneratorRestarted(Fault, element=13, bed="sampled"):
    why = "the distribution is the same; what is drawn from it is not"

    def live(self, live: Target) -> None:
        live.rng = torch.Generator().manual_seed(12345).get_state()
