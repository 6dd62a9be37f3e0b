"""The cursor counted within the last slice instead of the whole session."""

from dataclasses import replace

from harness.fault.base import Fault, State


class PositionSliceRelative(Fault, element=3):
    def inputs(self, state: State) -> State:
        return replace(state, next_position=state.next_position - state.next_position // 2)
