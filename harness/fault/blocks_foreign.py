"""The last half of the blocks belongs to another prompt."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class BlocksForeign(Fault, element=1, field="blocks_foreign"):
    def state(self, state: State, aid: Aid) -> State:
        other = aid.capture(state.token_ids[:1].flip(1))
        half = state.kept_tokens // 2
        return edit.mixed(state, other, lambda t, o: torch.cat([t[:, :, :half], o[:, :, half:]], 2))
