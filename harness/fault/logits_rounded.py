"""Logits kept in a narrower type and widened again."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State


class LogitsRounded(Fault, element=9):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, logits=state.logits.to(torch.float8_e5m2).to(state.logits.dtype))
