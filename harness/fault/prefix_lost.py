"""The system prefix dropped from cache, buffer and positions alike."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State


class PrefixLost(Fault, element=12):
    def state(self, state: State, aid: Aid) -> State:
        index = torch.arange(len(state.documents["prompt_meta"]["prefix_ids"]) or 1, state.tokens)
        return replace(aid.capture(state.token_ids[:1, index]), documents=state.documents)
