"""The last token's K/V overwritten by the token before it: right length, stale contents."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class StaleValues(Fault, element=1):
    def state(self, state: State, aid: Aid) -> State:
        def stale(t):
            return torch.cat([t[:, :, :-1], t[:, :, -2:-1]], dim=2)

        return edit.layers(state, stale, stale)
