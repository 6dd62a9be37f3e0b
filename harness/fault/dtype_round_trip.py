"""K/V stored through bfloat16 (float16 where it is bfloat16) and widened again."""

import torch

from harness.fault import edit
from harness.fault.base import Aid, Fault
from harness.snapshot.state import State


class DtypeRoundTrip(Fault):
    element = 1

    def state(self, state: State, aid: Aid) -> State:
        narrow = torch.float16 if state.dtype is torch.bfloat16 else torch.bfloat16

        def round_trip(t):
            return t.to(narrow).to(t.dtype)

        return edit.layers(state, round_trip, round_trip)


FAULTS = (DtypeRoundTrip(),)
