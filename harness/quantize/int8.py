"""`quantize=int8`: symmetric eight-bit integers, one scale per token (or channel) and group."""

import torch

from harness.quantize.base import Quantizer, symmetric
from harness.snapshot.codes import Codes


class Int8(Quantizer):
    """`number = code * scale`, codes from -127 to 127."""

    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        return symmetric(tensor, self.span(tensor), torch.int8)
