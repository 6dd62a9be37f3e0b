"""The bytes of [tokens, heads] read as [heads, tokens]: same shape, other meaning."""

from harness.fault.base import Aid, Fault, State, edit


class TransposedLayout(Fault, element=1, cause="head", field="heads"):
    def state(self, state: State, aid: Aid) -> State:
        def reread(t):
            return t.transpose(1, 2).contiguous().view(t.shape)

        return edit.layers(state, reread, reread)
