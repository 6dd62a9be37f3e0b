"""Another epsilon in every normalisation layer."""

from harness.fault.base import Fault, Target


class NormEpsilonChanged(Fault, element=7):
    def live(self, live: Target) -> None:
        for module in live.model.modules():
            for name in ("variance_epsilon", "eps"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 1e-3)
