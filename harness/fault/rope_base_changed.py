"""RoPE with another base frequency (a learned table: another power)."""

from harness.fault.base import Fault, Target, edit


class RopeBaseChanged(Fault, element=3, cause="identity"):
    def live(self, live: Target) -> None:
        edit.frequencies(live.model, lambda f: f.sign() * f.abs() ** 1.2)
