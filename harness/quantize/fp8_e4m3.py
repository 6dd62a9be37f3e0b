"""`quantize=fp8_e4m3`: eight-bit floats with three bits of mantissa (Micikevicius et al. 2022, "FP8
Formats for Deep Learning"), one scale per token (or channel) and group."""

import torch

from harness.quantize.base import Quantizer, symmetric
from harness.snapshot.codes import Codes


class Fp8E4M3(Quantizer):
    """`number = code * scale`, codes up to 448."""

    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        return symmetric(tensor, self.span(tensor), torch.float8_e4m3fn)
