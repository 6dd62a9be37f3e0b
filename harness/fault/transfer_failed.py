"""A block that never arrived, counted as a hit: zeros in every layer."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class TransferFailed(Fault, element=1, field="transfer"):
    def state(self, state: State, aid: Aid) -> State:
        b = edit.block(state)

        def missing(t):
            return torch.cat(
                [t[:, :, :b], torch.zeros_like(t[:, :, b : 2 * b]), t[:, :, 2 * b :]], 2
            )

        return edit.layers(state, missing, missing)
