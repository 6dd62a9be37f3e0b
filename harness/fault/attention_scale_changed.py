"""Scores scaled by another factor than at capture."""

from harness.fault.base import Fault, Target


class AttentionScaleChanged(Fault, element=8):
    def live(self, live: Target) -> None:
        for module in live.model.modules():
            if isinstance(getattr(module, "scaling", None), float):
                module.scaling *= 1.1
