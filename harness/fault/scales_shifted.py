"""The scales of quantized keys and values read with the wrong stride: one place further on."""

from harness.fault import edit
from harness.fault.base import Aid, Fault
from harness.snapshot.state import State


class ScalesShifted(Fault):
    element = 1
    cause = "scale"
    bed = "quantized"
    field = "scales"

    def state(self, state: State, aid: Aid) -> State:
        return edit.scales(state, lambda scale: scale.roll(1))
