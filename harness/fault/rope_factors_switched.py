"""RoPE factors switched at a length, and the cache keeps keys of the old ones."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State, edit


class RopeFactorsSwitched(Fault, element=3, field="rope_switch"):
    def state(self, state: State, aid: Aid) -> State:
        def short(model):
            edit.frequencies(model, lambda f: f / 1.5)

        return replace(state, layers=aid.capture(state.token_ids[:1], short).layers)
