"""Two neighbouring runs of ids exchanged in the token buffer."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class BufferReordered(Fault, element=4):
    why = "the cache answers as before; a recomputation from the buffer does not"

    def state(self, state: State, aid: Aid) -> State:
        n, m = state.tokens // 3, 2 * state.tokens // 3
        order = [*range(n), *range(m, state.tokens), *range(n, m)]
        return edit.buffer(state, torch.tensor(order))
