"""Families of the library that llama.cpp runs too, and what of each it keeps otherwise.

A row is a family's name in a GGUF file, and what makes its tensors and its numbers llama.cpp's. What a row
does not say is the same in both. Anything else about a model (a scaled RoPE, a window where the row has
none, another activation) is no model of this row, and `problem` says which.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

Change = Callable[[str, torch.Tensor], torch.Tensor]
EVERY_SIXTH = 6  # layers of Gemma 3: five with a window, one without
LOCAL = 10000.0  # RoPE's base in its windows, fixed in llama.cpp


@dataclass(frozen=True)
class Family:
    """architecture: in gguf's words. neighbours: its RoPE turns neighbours where the library turns halves.
    biased: where its projections may have biases. wanted: values of the config, without which it is
    another model. change: of a tensor on its way."""

    architecture: str
    neighbours: bool = False
    biased: tuple[str, ...] = ()
    wanted: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    change: Change = lambda name, tensor: tensor

    def problem(self, config: Any, names: list[str]) -> str | None:
        """Why `config` with parameters `names` is no model of this row; None where it is."""
        for key, values in self.wanted.items():
            if (value := getattr(config, key, values[0])) not in values:
                return f"{key}={value}"
        if bias := next((n for n in names if n.endswith(".bias") and not self._may(n)), None):
            return bias
        for kind, rope in ropes(config).items():
            if rope.get("rope_type", "default") != "default":
                return f"a RoPE that is scaled ({rope['rope_type']})"
            if kind == "sliding_attention" and rope["rope_theta"] != LOCAL:
                return f"a RoPE of base {rope['rope_theta']:g} in its windows"
        return self._windows(config)

    def _may(self, name: str) -> bool:
        return any(part in name for part in self.biased)

    def _windows(self, config: Any) -> str | None:
        kinds = getattr(config, "layer_types", None) or ["full_attention"]
        if self.architecture == "gemma3":
            pattern = ["full_attention" if (i + 1) % EVERY_SIXTH == 0 else "sliding_attention" for i in range(len(kinds))]  # fmt: skip
            return None if kinds == pattern else "windows in other layers than five of six"
        window = getattr(config, "sliding_window", None)
        plain = kinds == ["full_attention"] * len(kinds)
        everywhere = (
            config.model_type == "mistral" and window and window < config.max_position_embeddings
        )
        return None if plain and not everywhere else f"a window of {window} tokens"


def ropes(config: Any) -> dict[str, dict[str, Any]]:
    """RoPE's parameters by kind of layer; `""` where all layers share them, nothing where there is none."""
    said = getattr(config, "rope_parameters", None) or {}
    nested = {k: v for k, v in said.items() if isinstance(v, dict)}
    return nested or ({"": said} if said else {})


def _one_more(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Gemma's norms scale by 1 + weight; llama.cpp's by what stands in the file."""
    return tensor.float() + 1 if name.endswith("norm.weight") else tensor


def _transposed(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """GPT-2's Conv1D keeps `[in, out]`, a linear layer `[out, in]`."""
    conv = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    return tensor.T.contiguous() if conv else tensor


SILU = {"hidden_act": ("silu",)}
GELU = {"hidden_activation": ("gelu_pytorch_tanh",)}
FAMILIES = {
    "llama": Family("llama", neighbours=True, wanted=SILU),
    "mistral": Family("llama", neighbours=True, wanted=SILU),
    "qwen2": Family("qwen2", biased=("q_proj", "k_proj", "v_proj"), wanted=SILU),
    "qwen3": Family("qwen3", wanted=SILU),
    "gemma": Family("gemma", wanted={"hidden_activation": ("gelu_pytorch_tanh", None)}, change=_one_more),
    "gemma3_text": Family(
        "gemma3", change=_one_more,
        wanted=GELU | {"final_logit_softcapping": (None,), "attn_logit_softcapping": (None,),
                       "use_bidirectional_attention": (False, None)},
    ),
    "gpt2": Family(
        "gpt2", biased=("",), change=_transposed,
        wanted={"activation_function": ("gelu_new", "gelu_pytorch_tanh"), "scale_attn_weights": (True,),
                "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
    ),
}  # fmt: skip
