"""How fast this machine computes, so that what lies ahead can be announced."""

import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from statistics import median

import torch
from torch.nn.functional import linear

from harness import progress

SIDE, ROWS, RUNS = 1024, 64, 3  # of the product that is timed
WIDE = 4096  # side of a matrix that no processor keeps beside it
MANY = 1 << 22  # numbers that are widened to time it
TIMED = 64  # tokens of a pass that says how fast a model computes; of fewer, weights are the time
LAST = 5  # steps whose median is how long the next one takes
LONG = 1.0  # seconds of a first pass beside which its imports and compilation are small


class Pace:
    """Operations a second of one model in one precision: by the last of its passes that was timed, and
    before there was one by what a matrix product does here. A short first pass is warm-up."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._warm = self._stepped = False
        self._steps: deque[float] = deque(maxlen=LAST)

    def timed(self, operations: float, seconds: float) -> None:
        """A pass of so many operations took so many seconds."""
        if self._warm or seconds > LONG:
            self.rate = operations / seconds
        self._warm = True

    def stepped(self, seconds: float) -> None:
        """A call of so few tokens that the weights are most of it took so many seconds."""
        if self._stepped:
            self._steps.append(seconds)
        self._stepped = True

    @property
    def step(self) -> float | None:
        """Seconds of such a call, None where none was timed."""
        return median(self._steps) if self._steps else None

    def beyond(self, operations: float, dtype: torch.dtype, device: torch.device) -> float:
        """How much longer so many operations take than a matrix product's would, as far as is known: a scan over
        the tokens takes a hundred times as long, in whatever precision."""
        if self.rate is None:
            return 0.0
        return max(operations / self.rate - operations / product(dtype, str(device)), 0.0)

    def seconds(self, operations: float, dtype: torch.dtype, device: torch.device) -> float:
        """How long so many operations are going to take."""
        return operations / (self.rate or product(dtype, str(device)))

    def calls(
        self, parameters: int, tokens: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> float:
        """Seconds of calls of so many `tokens` each: none takes less than one of few tokens did, or, where none
        was timed, than reading the weights takes."""
        one = self.seconds(2.0 * parameters, dtype, device)
        if device.type != "cpu":
            return progress.weight(tokens) * one
        least = self.step or parameters * reading(dtype, str(device))
        return sum(max(count * one, least) for count in tokens)


@cache
def product(dtype: torch.dtype, device: str) -> float:
    """Operations a second of one matrix product as a layer multiplies (by the transposed weight: the other way
    bfloat16 is ten times slower on some processors), the best of a few: some milliseconds, once."""
    return 2.0 * ROWS * SIDE * SIDE / _multiplied(ROWS, SIDE, dtype, device)


@cache
def reading(dtype: torch.dtype, device: str) -> float:
    """Seconds in which a step reads one weight: no call of few tokens takes less."""
    return _multiplied(1, WIDE, dtype, device) / (WIDE * WIDE)


@cache
def widening(dtype: torch.dtype, device: str) -> float:
    """Seconds in which one weight becomes float64."""
    numbers, best = torch.ones(MANY, dtype=dtype, device=device), float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        float(numbers.to(torch.float64, copy=True)[0])
        best = min(best, time.perf_counter() - start)
    return best / MANY


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
