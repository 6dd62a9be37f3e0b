"""Only the tail of the past was restored: the first half of its K/V is gone."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class TailOnly(Fault, element=1, field="blocks_foreign"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.select(state, torch.arange(state.kept_tokens // 2, state.kept_tokens))
