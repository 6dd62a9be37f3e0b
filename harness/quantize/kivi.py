"""`quantize=kivi`: keys per channel, values per token, a recent window in full precision (Liu et al.
2024, "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache"). Keys have channels that are
large in every token, which a scale per token would drown; values have none."""

import torch

from harness.quantize.base import Quantizer, asymmetric
from harness.snapshot.codes import Codes


class Kivi(Quantizer):
    """`number = code * scale + zero`, one of each per channel and `group` tokens of the keys, and per
    token and `group` numbers of the values."""

    def encode(self, tensor: torch.Tensor, part: str) -> Codes:
        group = self.settings.group
        span = (group, 1) if part == "key" else (1, min(group, tensor.shape[3]))
        return asymmetric(tensor, span, self.settings.bits)
