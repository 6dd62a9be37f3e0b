"""Recurrent state of two tokens later, beside K/V that were rolled back."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class RecurrentAhead(Fault):
    element = 1
    cause = "recurrent state"
    bed = "hybrid"
    field = "recurrent_ahead"

    def state(self, state: State, aid: Aid) -> State:
        ids = state.token_ids[:1]
        return edit.recurrent_from(state, aid.capture(torch.cat([ids, ids[:, -2:]], dim=1)))
