"""The scales of quantized keys and values read with the wrong stride: one place further on."""

from harness.fault.base import Aid, Fault, State, edit


class ScalesShifted(Fault, element=1, cause="scale", bed="quantized", field="scales"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.scales(state, lambda scale: scale.roll(1))
