"""Two layers restored in each other's place."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class LayerSwap(Fault, element=1, cause="layer", field="layers"):
    def state(self, state: State, aid: Aid) -> State:
        first, second, *rest = state.layers
        first, second = replace(second, index=0), replace(first, index=1)
        return replace(state, layers=(first, second, *rest))
