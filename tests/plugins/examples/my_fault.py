"""The keys of one layer come back with their sign turned."""

from dataclasses import replace

from harness.errors import ConfigProblem
from harness.fault import Fault


class MyFault(Fault):
    element = 1
    why = "norms, shapes and lengths stay as they were"

    def configured(self, settings):
        fault = super().configured(settings)
        fault.layer = settings.layer
        return fault

    def state(self, state, aid):
        if not 0 <= self.layer < len(state.layers):
            raise ConfigProblem(f"fault.layer={self.layer}: there are {len(state.layers)} layers.")
        layer = state.layers[self.layer]
        turned = tuple(replace(s, key=-s.key) for s in layer.segments)
        rest = [replace(la, segments=turned) if la is layer else la for la in state.layers]
        return replace(state, layers=tuple(rest))
