"""The generation flags name another end-of-turn token."""

from harness.fault.base import Fault, Target


class GenerationFlags(Fault, element=6):
    why = "no logit moves; the answer ends elsewhere"

    def live(self, live: Target) -> None:
        live.model.generation_config.eos_token_id = 7
        live.model.generation_config.do_sample = True
