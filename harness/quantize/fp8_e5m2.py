"""`quantize=fp8_e5m2`: eight-bit floats with two bits of mantissa and float16's exponent (Micikevicius
et al. 2022, "FP8 Formats for Deep Learning"), one scale per token (or channel) and group."""

import torch

from harness.quantize.base import Quantizer, symmetric
from harness.snapshot.codes import Codes


class Fp8E5M2(Quantizer):
    """`number = code * scale`, codes up to 57344."""

    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        return symmetric(tensor, self.span(tensor), torch.float8_e5m2)
