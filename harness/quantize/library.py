"""`quantize=library`: the codes that the library's own QuantizedCache would hold, taken from its cache
layers as found and kept here. `backend=quanto` needs optimum-quanto; `fp8` needs nothing."""

from typing import Any

import torch

from harness import extras
from harness.config import QuantizeConfig
from harness.errors import ConfigProblem, UnsupportedModel
from harness.quantize.base import Quantizer
from harness.snapshot.codes import Codes, packed


class Library(Quantizer):
    """Feeds a tensor to the library's layer, then reads its codes, scales and zero points."""

    def __init__(self, settings: QuantizeConfig):
        super().__init__(settings)
        if settings.backend not in BACKENDS:
            raise ConfigProblem(
                f"quantize.backend={settings.backend} is not one of {', '.join(BACKENDS)}."
            )
        if settings.backend == "quanto":
            extras.need("quanto", "quantize=library")

    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        return BACKENDS[self.settings.backend](tensor, self.settings)


def _quanto(tensor: torch.Tensor, settings: QuantizeConfig) -> Codes:
    from transformers.cache_utils import QuantoQuantizedLayer

    width = tensor.shape[3]
    group = min(settings.group, width)
    if width % group:
        raise UnsupportedModel(
            f"quantize=library codes groups of {group} numbers and this model's heads have {width}. "
            f"Give quantize.group=N, a divisor of {width}."
        )
    layer = QuantoQuantizedLayer(nbits=settings.bits, q_group_size=group)
    layer.update(tensor, tensor)  # two copies of one tensor: only the keys are read
    coded = layer._quantized_keys
    each = (*tensor.shape[:3], width // group)
    codes = unpacked_rows(coded._data).reshape(tensor.shape)
    scale, shift = coded._scale.reshape(each), -coded._shift.reshape(each)
    narrow = packed(codes, settings.bits)
    return Codes(narrow, scale, shift, settings.bits, width, (1, group), tensor.dtype)


def unpacked_rows(stored: Any) -> torch.Tensor:
    """The codes of a PackedTensor, whose bytes hold rows that lie far apart. Its own `unpack` compiles
    C++ into site-packages and waits for whoever began that."""
    bits, data = stored._bits, stored._data
    rows = [(data >> place) & (2**bits - 1) for place in range(0, 8, bits)]
    return torch.cat(rows)[: stored.shape[0]]


def _fp8(tensor: torch.Tensor, settings: QuantizeConfig) -> Codes:
    from transformers.cache_utils import Fp8QuantizedLayer

    layer = Fp8QuantizedLayer()
    layer.update(tensor, tensor)
    codes, scale = layer._quantized_keys
    batch, heads, tokens, width = tensor.shape
    each = scale.float().reshape(1, 1, 1, 1).repeat(batch, heads, 1, 1)
    return Codes(codes, each, None, 8, width, (tokens, width), tensor.dtype)


BACKENDS = {"quanto": _quanto, "fp8": _fp8}
