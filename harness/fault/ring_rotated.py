"""The ring buffer of a sliding layer read from another slot than its oldest."""

from harness.fault.base import Aid, Fault, State, edit


class RingRotated(Fault, element=1, bed="windowed", field="ring"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.layers(state, lambda t: t.roll(3, 2), lambda t: t.roll(3, 2))
