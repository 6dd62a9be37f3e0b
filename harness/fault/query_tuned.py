"""The query projection of one layer trained on mid-session."""

from harness.fault.base import Fault, Target, edit


class QueryTuned(Fault, element=8):
    def live(self, live: Target) -> None:
        name = edit.projections(live.model, "q")
        edit.weight(live.model, name, lambda w: w + edit.noise_like(w, 0.05, self.seed))
