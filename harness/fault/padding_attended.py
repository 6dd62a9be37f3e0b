"""Padding given the positions of words after every check: masked by nobody."""

from dataclasses import replace

import torch

from harness.fault.base import Fault, State


class PaddingAttended(Fault, element=5, bed="padded"):
    def inputs(self, state: State) -> State:
        def unmask(p):
            return p.clamp(min=0)

        layers = tuple(
            replace(
                la, segments=tuple(replace(s, positions=unmask(s.positions)) for s in la.segments)
            )
            for la in state.layers
        )
        return replace(state, layers=layers, attention_mask=torch.ones_like(state.attention_mask))
