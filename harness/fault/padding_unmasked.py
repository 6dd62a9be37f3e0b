"""Left padding marked as words that may be attended to."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State


class PaddingUnmasked(Fault, element=5, bed="padded"):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, attention_mask=torch.ones_like(state.attention_mask))
