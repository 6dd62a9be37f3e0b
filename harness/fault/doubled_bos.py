"""A second BOS, which shifts every later position by one."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class DoubledBos(Fault, element=12):
    def state(self, state: State, aid: Aid) -> State:
        doubled = aid.capture(torch.cat([state.token_ids[:1, :1], state.token_ids[:1]], dim=1))
        return edit.described(replace(doubled, documents=state.documents))
