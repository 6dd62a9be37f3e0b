"""`cache2 = cache`: another branch went on through the same object before it was saved."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class AliasedCache(Fault, element=1, field="offset_lost"):
    def state(self, state: State, aid: Aid) -> State:
        grown = aid.capture(torch.cat([state.token_ids[:1], state.token_ids[:1, -2:]], dim=1))
        return edit.described(replace(state, layers=grown.layers))
