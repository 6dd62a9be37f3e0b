"""The gains kept in a narrower type and widened again, a little off."""

from harness.fault.base import Fault, Target, edit


class NormGainRounded(Fault, element=7):
    def live(self, live: Target) -> None:
        name = "norm" if edit.has(live.model, "norm") else "ln_"
        edit.weight(live.model, name, lambda w: edit.narrowed(w + 2**-6), every=True)
