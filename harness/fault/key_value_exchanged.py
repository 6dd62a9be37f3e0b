"""Keys restored as values and values as keys."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class KeyValueExchanged(Fault, element=1, cause="layer"):
    def state(self, state: State, aid: Aid) -> State:
        layers = tuple(
            replace(
                layer, segments=tuple(replace(s, key=s.value, value=s.key) for s in layer.segments)
            )
            for layer in state.layers
        )
        return replace(state, layers=layers)
