"""Logits stored after the temperature had been applied."""

from dataclasses import replace

from harness.fault.base import Aid, Fault, State


class LogitsAfterTemperature(Fault, element=9):
    def state(self, state: State, aid: Aid) -> State:
        return replace(state, logits=state.logits / 0.8)
