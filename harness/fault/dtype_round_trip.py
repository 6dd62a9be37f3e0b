"""K/V stored through a narrower type (bfloat16; 8 bits where it has 16) and widened again."""

from harness.fault.base import Aid, Fault, State, edit


class DtypeRoundTrip(Fault, element=1, cause="rounding"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.layers(state, edit.narrowed, edit.narrowed)
