"""How fast this machine computes, so that what lies ahead can be announced."""

import time
from functools import cache

import torch

SIDE, ROWS, RUNS = 1024, 64, 3  # of the product that is timed
LONG = 1.0  # seconds of a first pass beside which its imports and compilation are small


class Pace:
    """Operations a second of one model in one precision: by the last of its passes that was timed, and
    before there was one by what a matrix product does here. A short first pass is warm-up."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._warm = False

    def timed(self, operations: float, seconds: float) -> None:
        """A pass of so many operations took so many seconds."""
        if self._warm or seconds > LONG:
            self.rate = operations / seconds
        self._warm = True

    def share(self, dtype: torch.dtype, device: torch.device) -> float:
        """How much of a matrix product's rate the model reaches, as far as is known: a scan over the tokens
        reaches a hundredth."""
        return min(self.rate / product(dtype, str(device)), 1.0) if self.rate else 1.0

    def seconds(
        self, operations: float, dtype: torch.dtype, device: torch.device, share: float = 1.0
    ) -> float:
        """How long so many operations are going to take. share: of a product's rate, where no pass was timed."""
        return operations / (self.rate or share * product(dtype, str(device)))


@cache
def product(dtype: torch.dtype, device: str) -> float:
    """Operations a second of one matrix product, the best of a few: some milliseconds, once."""
    left = torch.ones(ROWS, SIDE, dtype=dtype, device=device)
    right = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        float((left @ right)[0, 0])  # waits for a GPU
        best = min(best, time.perf_counter() - start)
    return 2.0 * ROWS * SIDE * SIDE / best
