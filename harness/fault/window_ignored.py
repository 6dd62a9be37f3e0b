"""The attention window of the sliding layers ignored."""

from harness.fault.base import Fault, Target


class WindowIgnored(Fault, element=5, cause="identity", bed="windowed"):
    why = "what left the window was already dropped, so nothing moves until the next prefill"

    def live(self, live: Target) -> None:
        live.model.config.get_text_config(decoder=True).sliding_window = 1 << 20
