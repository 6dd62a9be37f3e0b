"""Another revision of the same architecture: every attention weight moved a little."""

from harness.fault.base import Fault, Target, edit


class SameShapeFineTune(Fault, element=8, field="weights"):
    def live(self, live: Target) -> None:
        for which in ("q", "k", "v", "o"):
            name = edit.projections(live.model, which)
            edit.weight(
                live.model, name, lambda w: w + edit.noise_like(w, 0.02, self.seed), every=True
            )
