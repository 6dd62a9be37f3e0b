"""One MLP matrix trained on between save and restore."""

from harness.fault.base import Fault, Target, edit


class MlpTuned(Fault, element=6):
    def live(self, live: Target) -> None:
        edit.weight(live.model, "mlp", lambda w: w + edit.noise_like(w, 0.05, self.seed))
