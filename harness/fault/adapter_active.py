"""An adapter beside the weights of a layer, which stay as they were."""

from harness.fault.base import Fault, Live, edit


class AdapterActive(Fault, element=8, field="adapter"):
    def live(self, live: Live) -> None:
        edit.adapter(live.model, edit.projections(live.model, "v").strip("."), self.seed)
