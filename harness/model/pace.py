"""How fast this machine computes, so that what lies ahead can be announced."""

import time
from functools import cache

import torch
from torch.nn.functional import linear

from harness.progress import FEWEST

SIDE, ROWS, RUNS = 1024, 64, 3  # of the product that is timed
WIDE = 4096  # side of a matrix that no processor keeps beside it
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
    """Operations a second of one matrix product as a layer multiplies (by the transposed weight: the other way
    bfloat16 is ten times slower on some processors), the best of a few: some milliseconds, once."""
    return 2.0 * ROWS * SIDE * SIDE / _multiplied(ROWS, SIDE, dtype, device)


@cache
def fewest(dtype: torch.dtype, device: str) -> float:
    """Tokens whose sums take as long as reading the weights does, so that a call of fewer takes no less: between 1,
    where the sums are slow, and `FEWEST`, as on a GPU."""
    if not device.startswith("cpu"):
        return FEWEST
    reading = _multiplied(1, WIDE, dtype, device)
    return min(max(reading * product(dtype, device) / (2.0 * WIDE * WIDE), 1.0), FEWEST)


def _multiplied(rows: int, side: int, dtype: torch.dtype, device: str) -> float:
    """Seconds of `[rows, side]` through a layer of `side` by `side`, the best of a few."""
    left = torch.ones(rows, side, dtype=dtype, device=device)
    weight = torch.ones(side, side, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        float(linear(left, weight)[0, 0])  # waits for a GPU
        best = min(best, time.perf_counter() - start)
    return best
