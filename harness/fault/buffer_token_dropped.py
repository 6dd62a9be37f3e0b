"""One id missing from the middle of the token buffer."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class BufferTokenDropped(Fault, element=4):
    why = "the cache answers as before; the next slice or recomputation does not"

    def state(self, state: State, aid: Aid) -> State:
        middle = state.tokens // 2
        return edit.buffer(state, torch.tensor([i for i in range(state.tokens) if i != middle]))
