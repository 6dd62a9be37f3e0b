"""Quantizers: keys and values as codes, scales and zero points. `Quantizer` is the base of your own,
`Codes` what its `encode` returns; `symmetric` and `asymmetric` make them of a tensor and a span."""

from typing import TYPE_CHECKING

from harness.variants import lazily

if TYPE_CHECKING:
    from harness.quantize.base import Quantizer, asymmetric, symmetric
    from harness.snapshot.codes import Codes

__all__ = ["Codes", "Quantizer", "asymmetric", "symmetric"]
__getattr__ = lazily(
    Quantizer="harness.quantize.base",
    symmetric="harness.quantize.base",
    asymmetric="harness.quantize.base",
    Codes="harness.snapshot.codes",
)
