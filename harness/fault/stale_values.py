"""The last token's K/V overwritten by the token before it: right length, stale contents."""

import torch

from harness.fault import edit
from harness.fault.base import Aid, Fault
from harness.snapshot.state import State


class StaleValues(Fault):
    element = 1

    def state(self, state: State, aid: Aid) -> State:
        def stale(t):
            return torch.cat([t[:, :, :-1], t[:, :, -2:-1]], dim=2)

        return edit.layers(state, stale, stale)
