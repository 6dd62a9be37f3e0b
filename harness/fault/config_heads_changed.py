"""The config claims another number of KV heads."""

from harness.fault.base import Fault, Target


class ConfigHeadsChanged(Fault, element=6):
    why = "the loaded modules do not read it again; the next load builds another model"

    def live(self, live: Target) -> None:
        config = live.model.config.get_text_config(decoder=True)
        config.num_key_value_heads = 2 * getattr(config, "num_key_value_heads", 1)
