"""Half the tokens pruned and the rest renumbered without rotating their keys."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class PositionWrongAfterPruning(Fault, element=3, field="offset_rows"):
    def state(self, state: State, aid: Aid) -> State:
        index = torch.arange(0, state.kept_tokens, 2)
        pruned = edit.select(state, index, lambda p: torch.arange(p.shape[-1]).expand_as(p))
        return replace(pruned, next_position=torch.full_like(state.next_position, len(index)))
