"""The first third of the session masked out."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class MaskHidesHistory(Fault, element=5):
    def state(self, state: State, aid: Aid) -> State:
        mask = state.attention_mask.clone()
        mask[:, : state.tokens // 3] = 0
        return replace(state, attention_mask=mask)
