"""The logits of another request, beside the right cache."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class LogitsOfAnotherRequest(Fault, element=9, field="logprobs"):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, logits=aid.capture(state.token_ids[:1].flip(1)).logits)
