"""The gains kept in bfloat16 and widened again."""

from harness.fault import edit
from harness.fault.base import Fault, Live


class NormGainRounded(Fault):
    element = 7

    def live(self, live: Live) -> None:
        name = "norm" if edit.has(live.model, "norm") else "ln_"
        edit.weight(live.model, name, lambda w: w.bfloat16().to(w.dtype) * (1 + 2**-9), every=True)


FAULTS = (NormGainRounded(),)
