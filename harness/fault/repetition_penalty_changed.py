"""Sampling resumed with another repetition penalty."""

from dataclasses import replace

from harness.fault.base import Fault, Target


class RepetitionPenaltyChanged(Fault, element=13, bed="sampled"):
    why = "the logits are the same; the distribution made of them is not"

    def live(self, live: Target) -> None:
        live.sampling = replace(live.sampling, repetition_penalty=1.7)
