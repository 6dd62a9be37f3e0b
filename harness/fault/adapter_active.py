"""An adapter beside the weights of a layer, which stay as they were."""

from harness.fault.base import Fault, Target, edit


class AdapterActive(Fault, element=8, field="adapter"):
    def live(self, live: Target) -> None:
        edit.adapter(live.model, edit.projections(live.model, "v").strip("."), self.seed)
