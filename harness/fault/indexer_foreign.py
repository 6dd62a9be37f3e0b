"""The indexer's keys of another request, beside the right K/V."""

from harness.fault.base import Aid, Fault, State, edit


class IndexerForeign(Fault, element=1, cause="indexer", bed="indexed", field="indexer"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.recurrent_from(state, aid.capture(state.token_ids[:1].flip(1)))
