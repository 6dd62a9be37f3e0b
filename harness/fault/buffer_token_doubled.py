"""One id written twice into the token buffer."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class BufferTokenDoubled(Fault, element=4):
    why = "the cache answers as before; the next slice or recomputation does not"

    def state(self, state: State, aid: Aid) -> State:
        middle = state.tokens // 2
        return edit.buffer(state, torch.tensor([*range(middle + 1), *range(middle, state.tokens)]))
