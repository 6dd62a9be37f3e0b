"""Bytes of [head_dim, heads] read as [heads, head_dim]: same shape, other meaning."""

from harness.fault.base import Aid, Fault, State, edit


class HeadLayout(Fault, element=1, cause="head", field="heads"):
    def state(self, state: State, aid: Aid) -> State:
        def reread(t):
            batch, heads, tokens, dim = t.shape
            bytes_of = t.permute(0, 2, 3, 1).contiguous()
            return bytes_of.view(batch, tokens, heads, dim).transpose(1, 2).contiguous()

        return edit.layers(state, reread, reread)
