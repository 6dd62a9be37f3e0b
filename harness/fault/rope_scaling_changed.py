"""RoPE frequencies scaled for a longer context than the one at capture."""

from harness.fault.base import Fault, Target, edit


class RopeScalingChanged(Fault, element=3, cause="identity"):
    def live(self, live: Target) -> None:
        edit.frequencies(live.model, lambda f: f / 2.0)
