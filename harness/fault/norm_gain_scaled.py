"""The gain of one normalisation layer scaled by a tenth."""

from harness.fault.base import Fault, Target, edit


class NormGainScaled(Fault, element=7):
    def live(self, live: Target) -> None:
        edit.weight(
            live.model, "norm" if edit.has(live.model, "norm") else "ln_", lambda w: w * 1.1 + 0.1
        )
