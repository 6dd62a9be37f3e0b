"""The scales of quantized keys and values were not stored: a reader takes them for one."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class ScalesLost(Fault, element=1, cause="scale", bed="quantized", field="scales"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.scales(state, torch.ones_like)
