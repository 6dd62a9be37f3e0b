"""The words of the system prefix in another order."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class PrefixReordered(Fault, element=12):
    def state(self, state: State, aid: Aid) -> State:
        end = max(len(state.documents["prompt_meta"]["prefix_ids"]), 3)
        order = [0, *reversed(range(1, end)), *range(end, state.tokens)]
        return replace(aid.capture(state.token_ids[:1, order]), documents=state.documents)
