"""Positions restart at 0 with the new turn."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State


class PositionRestarted(Fault, element=3, field="offset_lost"):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, next_position=torch.zeros_like(state.next_position))
