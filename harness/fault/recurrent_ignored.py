"""Recurrent state dropped on the way to the forward: it starts from zero."""

import torch

from harness.fault.base import Fault, State, edit


class RecurrentIgnored(Fault):
    element = 1
    cause = "recurrent state"
    bed = "hybrid"
    field = "recurrent_ignored"

    def inputs(self, state: State) -> State:
        return edit.recurrent(state, lambda name, t: torch.zeros_like(t))
