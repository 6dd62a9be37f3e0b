"""The next token is placed one position too far."""

from dataclasses import replace

from harness.fault.base import Fault, State


class PositionOffByOne(Fault, element=3):
    def inputs(self, state: State) -> State:
        return replace(state, next_position=state.next_position + 1)
