"""The indexer's keys one token away from the keys and values that they point to."""

from harness.fault.base import Aid, Fault, State, edit


class IndexerShifted(Fault, element=1, cause="indexer", bed="indexed", field="indexer"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.recurrent(state, lambda _, t: t.roll(1, 1) if t.is_floating_point() else t)
