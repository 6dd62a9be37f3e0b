"""An adapter beside the weights of a layer, which stay as they were."""

from harness.fault import edit
from harness.fault.base import Fault, Live


class AdapterActive(Fault):
    element = 8
    field = "adapter"

    def live(self, live: Live) -> None:
        edit.adapter(live.model, edit.projections(live.model, "v").strip("."), self.seed)
