"""RoPE with another base frequency (another scale of the table where positions are learned)."""

from harness.fault.base import Fault, Live


class RopeBaseChanged(Fault):
    element = 3

    def live(self, live: Live) -> None:
        for name, module in live.model.named_modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq.copy_(module.inv_freq**1.2)
            elif name.endswith(("wpe", "embed_positions")):
                module.weight.data.mul_(1.2)


FAULTS = (RopeBaseChanged(),)
