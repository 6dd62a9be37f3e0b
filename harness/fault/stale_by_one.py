"""The cache object of one step earlier, beside the buffer and cursor of now."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class StaleByOne(Fault, element=1, field="stale_tail"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.select(state, torch.arange(state.kept_tokens - 1))
