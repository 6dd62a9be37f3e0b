"""RoPE frequencies scaled for a longer context than the one at capture."""

from harness.fault.base import Fault, Live


class RopeScalingChanged(Fault):
    element = 3

    def live(self, live: Live) -> None:
        for module in live.model.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq.div_(2.0)


FAULTS = (RopeScalingChanged(),)
