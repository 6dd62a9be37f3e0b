"""Two restores into the same layers: every second one holds the other session."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class RestoreRace(Fault, element=1, cause="layer", field="race"):
    def state(self, state: State, aid: Aid) -> State:
        other = aid.capture(state.token_ids[:1].flip(1))
        pairs = zip(state.layers, other.layers, strict=True)
        return replace(state, layers=tuple(o if s.index % 2 else s for s, o in pairs))
