"""The system prefix sent twice."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class PrefixDoubled(Fault, element=12):
    def state(self, state: State, aid: Aid) -> State:
        prefix = state.token_ids[:1, : len(state.documents["prompt_meta"]["prefix_ids"]) or 1]
        doubled = aid.capture(torch.cat([prefix, state.token_ids[:1]], dim=1))
        return edit.described(replace(doubled, documents=state.documents))
