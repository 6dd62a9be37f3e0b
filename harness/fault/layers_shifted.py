"""Every layer restored one place too far: a partition that begins elsewhere."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class LayersShifted(Fault, element=1, cause="layer", field="layers"):
    def state(self, state: State, aid: Aid) -> State:
        places = [layer.index for layer in state.layers]
        moved = [*state.layers[-1:], *state.layers[:-1]]
        return replace(state, layers=tuple(map(lambda la, i: replace(la, index=i), moved, places)))
