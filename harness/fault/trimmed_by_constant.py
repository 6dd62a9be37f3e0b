"""Trimmed by a whole block, whatever was asked for."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class TrimmedByConstant(Fault, element=1, field="stale_tail"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.select(state, torch.arange(state.kept_tokens - edit.block(state)))
