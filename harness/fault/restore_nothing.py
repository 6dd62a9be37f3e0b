"""The restore reports success and hands over an empty cache."""

from harness.fault.base import Fault, State, edit


class RestoreNothing(Fault, element=1, field="nothing"):
    def inputs(self, state: State) -> State:
        return edit.layers(state, lambda t: t[:, :, :0], lambda t: t[:, :, :0])
