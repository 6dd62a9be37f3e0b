"""The format document claims another order of dimensions."""

from harness.fault.base import Aid, Fault, State


class LayoutRelabelled(Fault, element=11):
    why = "a reader that believes it would transpose the cache"

    def state(self, state: State, aid: Aid) -> State:
        return state.document("kv_format", layout="[batch, tokens, kv_heads, head_dim]")
