"""Rows of a longer past left behind a shorter offset."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State, edit
from harness.snapshot.coherence import buffer_document


class StaleTail(Fault, element=1, field="stale_tail"):
    def state(self, state: State, aid: Aid) -> State:
        shorter = aid.capture(state.token_ids[:1, :-3])
        sent = buffer_document(shorter.token_ids)
        shorter = shorter.document("prompt_meta", buffer=sent)
        return edit.described(replace(shorter, layers=state.layers))
