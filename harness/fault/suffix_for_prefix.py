"""The K/V of a suffix taken for those of the prefix."""

from harness.fault.base import Aid, Fault, State, edit


class SuffixForPrefix(Fault, element=1, field="block_order"):
    why = (
        "full attention sums over its rows in any order, so no logit moves; a window, a policy or the "
        "next hit of the prefix takes the wrong rows"
    )

    def state(self, state: State, aid: Aid) -> State:
        def exchanged(t):
            return t.roll(t.shape[2] // 2, 2)

        return edit.layers(state, exchanged, exchanged)
