"""Another activation function in the MLP."""

import torch

from harness.fault.base import Fault, Target


class ActivationChanged(Fault, element=6):
    def live(self, live: Target) -> None:
        for module in live.model.modules():
            for name in ("act_fn", "act"):
                if isinstance(getattr(module, name, None), torch.nn.Module):
                    setattr(module, name, torch.nn.ReLU())
        live.model.config.get_text_config(decoder=True).hidden_act = "relu"
