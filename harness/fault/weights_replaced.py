"""Other weights written into the loaded model, under the same name."""

from harness.fault.base import Fault, Target, edit


class WeightsReplaced(Fault, element=8, field="weights"):
    remembered = True

    def live(self, live: Target) -> None:
        for which in ("q", "k", "v", "o"):
            name = edit.projections(live.model, which)
            edit.weight(
                live.model, name, lambda w: w + edit.noise_like(w, 0.05, self.seed), every=True
            )
