"""Sampling resumed with another top-k."""

from dataclasses import replace

from harness.fault.base import Fault, Target


class TopKChanged(Fault, element=13, bed="sampled"):
    why = "the logits are the same; the distribution made of them is not"

    def live(self, live: Target) -> None:
        live.sampling = replace(live.sampling, top_k=2)
