"""`cache=manual`: our own forward over a past that is only read, plus a private tail.

One short file per family. A family's `forward` takes the model, the new ids and their positions,
and asks `memory` for attention, layer by layer; it never sees the cache itself.
"""

from functools import partial
from importlib import import_module
from os import sep
from pathlib import Path
from typing import Any

import torch
import transformers

from harness.cache.base import ReadOnlyDecoder, check_complete, check_heads, heads_of
from harness.cache.manual.captured import Captured, recordable
from harness.cache.memory import Memory
from harness.errors import UnsupportedModel
from harness.snapshot.state import FULL, SLIDING, State

# where the code lies that this one is written after
LIBRARIES = tuple(f"{Path(str(library.__file__)).parent}{sep}" for library in (torch, transformers))
# transformers model_type -> the file of its family in this folder
FAMILIES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "gpt2": "gpt2",
    "gemma3_text": "gemma3",
}


class Manual(ReadOnlyDecoder):
    """Reads the State, writes only its own tail. Raises UnsupportedModel for other families.

    On CUDA steps of one token are recorded and replayed, from the second on (`cache.capture=false`:
    never). Everywhere else, and for more tokens, each step is started operation by operation.
    """

    def __init__(self, loaded: Any, state: State, settings: Any):
        kind = loaded.text_config.model_type
        if kind not in FAMILIES:
            view = "cache=view, the model's own forward over a read-only past, or "
            both = any(layer.segments and layer.recurrent for layer in state.layers)
            raise UnsupportedModel(
                f"cache=manual has no forward for '{kind}' models (it has: {', '.join(FAMILIES)}). "
                f"Use {'' if both else view}cache=cloned."  # which view does not serve either
            )
        odd = {layer.kind for layer in state.layers} - {FULL, SLIDING}
        if odd:
            raise UnsupportedModel(
                f"cache=manual cannot serve layers of kind {', '.join(sorted(odd))}. Use cache=cloned."
            )
        family = import_module(f"{__name__}.{FAMILIES[kind]}")
        if (reason := family.refuses(loaded.text_config)) is not None:
            raise UnsupportedModel(
                f"cache=manual cannot serve this model: {reason}. Use cache=view."
            )
        if (path := _passed_by(loaded.model)) is not None:
            raise UnsupportedModel(
                f"cache=manual cannot serve this model: '{path}' has a hook, a class or a forward of its own, "
                "which a forward that is written out would pass by. Use cache=view."
            )
        check_heads(state, getattr(family, "heads", heads_of)(loaded.text_config))
        super().__init__(loaded, state, settings)
        self._forward = family.forward
        self._whole = getattr(family, "step", None) if settings.capture else None
        windows = [family.window(loaded.text_config, layer.index) for layer in state.layers]
        for layer, window in zip(state.layers, windows, strict=True):
            check_complete(layer, window)
        self.memory = Memory(state, windows, self.branches)
        self.captured: Captured | None = None  # the step of one token with fixed shapes
        if settings.capture and loaded.device.type == "cuda" and recordable(loaded.model):
            self.capture(record=True)

    def capture(self, record: bool) -> None:
        """Feed single tokens with fixed shapes from now on. record: as a CUDA graph."""
        forward = partial(self._forward, self.loaded.model)
        self.captured = Captured(self.memory, forward, record)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if self.captured is not None and self.captured.serves(ids):
                return self.captured.step(ids, positions)
            self.memory.begin(positions)
            if self._whole is not None:
                logits = self._whole(self.loaded.model, ids, positions, self.memory)
                if logits is not None:
                    return logits
            return self._forward(self.loaded.model, ids, positions, self.memory)


def _passed_by(model: Any) -> str | None:
    """Path of a module that is not called here, and that somebody listens to, has wrapped or has
    exchanged for a class or a forward of their own. Projections, activations and embeddings are called."""
    body = model.get_decoder()
    for path, module in model.named_modules():
        block, norm = path.rpartition(".")[2], "norm" in type(module).__name__.lower()
        opened = block in ("self_attn", "attn", "mlp") or block.isdigit()
        exchanged = opened and type(module).__module__.partition(".")[0] not in ("torch", "transformers")  # fmt: skip
        ours = exchanged or ((opened or norm or module in (model, body)) and _written(module))
        whole = bool(module._modules) or norm
        if ours or (whole and _listened(module)):
            return path or type(module).__name__
    return None


def _written(module: Any) -> bool:
    """Whether the forward of its class is not the library's: a subclass has one, or somebody put it there. What wraps
    another passes for it by name, so its code is looked at, and the other's."""
    forward = type(module).forward
    while forward is not None:
        code = getattr(forward, "__code__", None)
        if code is None or not code.co_filename.startswith(LIBRARIES):
            return True
        forward = getattr(forward, "__wrapped__", None)
    return False


def _listened(module: Any) -> bool:
    """Whether a hook or a forward of its own is there; our own hooks look and change nothing."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ours = all(str(getattr(hook, "__module__", "")).startswith("harness.") for hook in hooks)
    return not ours or "forward" in vars(module)
