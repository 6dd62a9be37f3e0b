"""`cache=manual`: our own forward over a past that is only read, plus a private tail.

One short file per family. A family's `forward` takes the model, the new ids and their positions,
and asks `memory` for attention, layer by layer; it never sees the cache itself.
"""

from functools import partial
from importlib import import_module
from typing import Any

import torch

from harness.cache.base import ReadOnlyDecoder, check_complete, check_heads
from harness.cache.manual.captured import Captured, recordable
from harness.cache.memory import Memory
from harness.errors import UnsupportedModel
from harness.snapshot.state import FULL, SLIDING, State

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
            raise UnsupportedModel(
                f"cache=manual has no forward for '{kind}' models (it has: {', '.join(FAMILIES)}). "
                "Use cache=view, the model's own forward over a read-only past, or cache=cloned."
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
        check_heads(loaded, state)
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
