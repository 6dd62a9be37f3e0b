"""Recurrent state of another request, beside the right K/V."""

from harness.fault.base import Aid, Fault, State, edit


class RecurrentForeign(Fault):
    element = 1
    cause = "recurrent state"
    bed = "hybrid"
    field = "recurrent_foreign"

    def state(self, state: State, aid: Aid) -> State:
        return edit.recurrent_from(state, aid.capture(state.token_ids[:1].flip(1)))
