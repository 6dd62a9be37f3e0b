"""One block of K/V written over another, in every layer."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class BlockOverwritten(Fault, element=1, field="block_order"):
    def state(self, state: State, aid: Aid) -> State:
        b = edit.block(state)

        def overwritten(t):
            return torch.cat([t[:, :, :b], t[:, :, -b:], t[:, :, 2 * b :]], dim=2)

        return edit.layers(state, overwritten, overwritten)
