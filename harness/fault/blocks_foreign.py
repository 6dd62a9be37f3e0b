"""The last half of the blocks belongs to another prompt."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class BlocksForeign(Fault, element=1, field="blocks_foreign"):
    def state(self, state: State, aid: Aid) -> State:
        other = aid.capture(state.token_ids[:1].flip(1))
        half = state.kept_tokens // 2

        def halves(mine: torch.Tensor, foreign: torch.Tensor) -> torch.Tensor:
            rest = foreign.shape[2] - mine.shape[2] + half  # of a pruned state fewer rows are left
            return torch.cat([mine[:, :, :half], foreign[:, :, rest:]], 2)

        return edit.mixed(state, other, halves)
