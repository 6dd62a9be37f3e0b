"""`quantize=int4`: four-bit integers between the smallest and the largest of a group, two to a byte."""

import torch

from harness.quantize.base import Quantizer, asymmetric
from harness.snapshot.codes import Codes


class Int4(Quantizer):
    """`number = code * scale + zero`, codes from 0 to 15."""

    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        return asymmetric(tensor, self.span(tensor), 4)
