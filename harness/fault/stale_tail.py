"""Rows of a longer past left behind a shorter offset."""

from dataclasses import replace

from harness.fault import edit
from harness.fault.base import Aid, Fault
from harness.snapshot.state import State


class StaleTail(Fault):
    element = 1
    field = "stale_tail"

    def state(self, state: State, aid: Aid) -> State:
        shorter = aid.capture(state.token_ids[:1, :-3])
        return edit.described(replace(shorter, layers=state.layers, documents=state.documents))
