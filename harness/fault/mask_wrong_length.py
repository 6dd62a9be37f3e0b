"""A mask one token shorter than the buffer."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class MaskWrongLength(Fault, element=5):
    why = (
        "a forward that goes by positions does not read it; the library's own does, and goes wrong"
    )

    def state(self, state: State, aid: Aid) -> State:
        return replace(state, attention_mask=state.attention_mask[:, :-1].contiguous())
