"""A soft cap on the logits that the saved config did not have."""

from harness.fault.base import Fault, Target


class ConfigSoftcap(Fault, element=6):
    def live(self, live: Target) -> None:
        live.model.config.get_text_config(decoder=True).final_logit_softcapping = 10.0
        head = live.model.get_output_embeddings()
        head.register_forward_hook(lambda module, inputs, out: 10.0 * (out / 10.0).tanh())
