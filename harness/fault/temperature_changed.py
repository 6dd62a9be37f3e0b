"""Sampling resumed at another temperature."""

from dataclasses import replace

from harness.fault.base import Fault, Target


class TemperatureChanged(Fault, element=13, bed="sampled"):
    why = "the logits are the same; the distribution made of them is not"

    def live(self, live: Target) -> None:
        live.sampling = replace(live.sampling, temperature=live.sampling.temperature + 0.9)
