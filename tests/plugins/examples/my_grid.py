"""Keys coarse, values fine: eight-bit codes on grids of two sizes."""

from dataclasses import replace

from harness.config import within
from harness.quantize import Codes, Quantizer, asymmetric


class MyGrid(Quantizer):
    def __init__(self, settings):
        super().__init__(settings)  # checks axis, group and recent
        within("quantize.levels", settings.levels, 2, 256)

    def encode(self, tensor, part) -> Codes:
        codes = asymmetric(tensor, self.span(tensor), bits=8)  # 0 to 255, smallest to largest
        if part == "value":
            return codes
        step = 255 / (self.settings.levels - 1)
        grid = (codes.codes.float() / step).round() * step
        return replace(codes, codes=grid.round().to(codes.codes.dtype))
