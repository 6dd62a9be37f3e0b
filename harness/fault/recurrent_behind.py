"""A recurrent checkpoint one token short of the K/V."""

from harness.fault.base import Aid, Fault, State, edit


class RecurrentBehind(Fault):
    element = 1
    cause = "recurrent state"
    bed = "hybrid"
    field = "recurrent_behind"

    def state(self, state: State, aid: Aid) -> State:
        return edit.recurrent_from(state, aid.capture(state.token_ids[:1, :-1]))
