"""The K/V of another conversation of the same length."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class OtherSession(Fault, element=1, field="blocks_foreign"):
    def state(self, state: State, aid: Aid) -> State:
        other = aid.capture(state.token_ids[:1].flip(1))
        return replace(state, layers=other.layers)
