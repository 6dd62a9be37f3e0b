"""Reuse told by time alone, for engines that do not say how much they reused: weaker than a count.

Cold and cached requests for one token alternate, each pair gives a ratio. The interval is that of the
median's order statistics, which asks nothing of how times are distributed.
"""

from dataclasses import dataclass
from statistics import median

from harness.engine import Engine
from harness.engine.base import Prompt

PAIRS = 9
# second smallest to second largest of nine: the median lies there in 96 % of cases
LOW, HIGH = 1, 7


@dataclass(frozen=True)
class Ratio:
    """Time of a cached request over that of a cold one: the median of the pairs, and its interval."""

    middle: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether cached requests are faster beyond chance."""
        return self.high < 1

    def __str__(self) -> str:
        return f"{self.middle:.2f} of a cold request's time ({self.low:.2f} to {self.high:.2f})"


UNTIMED = Ratio(1.0, 1.0, 1.0)


def reuse(engine: Engine, prompt: Prompt) -> Ratio:
    """Leaves `prompt` in the cache. Where the engine ignores what makes a request cold, both take as
    long, and nothing is told; nor is it where the engine does not time its answers."""
    engine.resume(prompt, 1)
    pairs = [(engine.resume(prompt, 1), engine.evaluate(prompt, 1)) for _ in range(PAIRS)]
    if not all(cold.seconds for _, cold in pairs):
        return UNTIMED
    return interval([cached.seconds / cold.seconds for cached, cold in pairs])


def interval(ratios: list[float]) -> Ratio:
    """Of `PAIRS` ratios."""
    ranked = sorted(ratios)
    return Ratio(median(ranked), ranked[LOW], ranked[HIGH])
