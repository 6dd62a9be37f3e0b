"""A rank-two adapter merged into every query and value projection."""

from harness.fault.base import Fault, Target, edit


class LoraMerged(Fault, element=8, field="adapter"):
    def live(self, live: Target) -> None:
        def merge(w):
            left = edit.noise_like(w[:, :2], 0.3, seed=1)
            return w + left @ edit.noise_like(w[:2], 1.0, seed=2)

        for which in ("q", "v"):
            edit.weight(
                live.model, edit.projections(live.model, which) + "weight", merge, every=True
            )
