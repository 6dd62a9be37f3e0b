"""The convolution's window of the last inputs shifted by one."""

from harness.fault.base import Aid, Fault, State, edit


class ConvolutionRolled(Fault):
    element = 1
    cause = "recurrent state"
    bed = "hybrid"
    field = "recurrent_behind"

    def state(self, state: State, aid: Aid) -> State:
        def rolled(name, t):
            return t.roll(1, -1) if name.startswith("conv") else t

        return edit.recurrent(state, rolled)
