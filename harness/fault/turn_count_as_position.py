"""The number of turns used as the position of the next token."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State


class TurnCountAsPosition(Fault, element=4, cause="position"):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, next_position=torch.full_like(state.next_position, aid.turns))
