"""The value projection of one layer trained on mid-session."""

from harness.fault.base import Fault, Target, edit


class ValueTuned(Fault, element=8):
    def live(self, live: Target) -> None:
        name = edit.projections(live.model, "v")
        edit.weight(live.model, name, lambda w: w + edit.noise_like(w, 0.05, self.seed))
