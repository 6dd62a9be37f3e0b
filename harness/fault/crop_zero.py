"""A crop to nothing that keeps everything: the past is read after itself."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class CropZero(Fault, element=1, field="crop_zero"):
    def state(self, state: State, aid: Aid) -> State:
        twice = aid.capture(torch.cat([state.token_ids[:1], state.token_ids[:1]], dim=1))
        return edit.described(replace(state, layers=twice.layers))
