"""The logits of the step before, beside the cache of now."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class LogitsOfAnotherStep(Fault, element=9, field="logprobs"):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, logits=aid.capture(state.token_ids[:1, :-1]).logits)
