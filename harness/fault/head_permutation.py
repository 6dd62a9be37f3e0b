"""The KV heads of one layer come back in another order."""

from harness.fault.base import Aid, Fault, State, edit


class HeadPermutation(Fault, element=1, cause="head", field="heads"):
    def state(self, state: State, aid: Aid) -> State:
        def flip(t):
            return t.flip(1).contiguous()

        return edit.layers(state, flip, flip, only=0)
