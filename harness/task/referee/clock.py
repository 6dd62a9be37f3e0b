"""Reuse told by time alone, for engines that do not say how much they reused: weaker than a count.

Cold requests for one token alternate with requests after whatever a case does to the cache; each pair gives
a ratio. The interval is that of the median's order statistics, which asks nothing of how times are
distributed. Only the request is timed, never the command that moves the cache away or restarts a server; the
first request after a restart may be slow for reasons of its own, and then nothing is told.
"""

from dataclasses import dataclass
from statistics import median

from harness.engine import Engine
from harness.engine.base import Prompt

# pairs of a case, and how many of the extremes at each end are left out: the median lies between the others
# in 96 % (nine pairs) and 97 % (six, where each costs a restart) of cases
PAIRS = {"hit": (9, 1), "restored": (9, 1), "restarted": (6, 0)}
REMEDY = "; where a server ignores cache_salt, engine.flush=COMMAND makes a request cold"


@dataclass(frozen=True)
class Ratio:
    """Time of a request that may reuse over that of a cold one: the median of the pairs, and its interval."""

    middle: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether such requests are faster beyond chance."""
        return self.high < 1

    def __str__(self) -> str:
        return f"{self.middle:.2f} of a cold request's time ({self.low:.2f} to {self.high:.2f})"


UNTIMED = Ratio(1.0, 1.0, 1.0)


def reuse(engine: Engine, case: str, prompt: Prompt) -> Ratio:
    """Leaves `prompt` in the cache. Where the engine ignores what makes a request cold, both take as
    long, and nothing is told; nor is it where a case leaves nothing to be reused, or where the engine
    does not time its answers."""
    pairs, out = PAIRS[case]
    ratios = []
    for _ in range(pairs):
        engine.save(prompt)  # a cold request may have emptied the cache
        engine.restore(case)
        again, cold = engine.resume(prompt, 1), engine.evaluate(prompt, 1)
        if not cold.seconds:
            return UNTIMED
        ratios.append(again.seconds / cold.seconds)
    return interval(ratios, out)


def interval(ratios: list[float], out: int) -> Ratio:
    """Of the median, all but the `out` smallest and largest of `ratios`."""
    ranked = sorted(ratios)
    return Ratio(median(ranked), ranked[out], ranked[-1 - out])


def unable(engine: Engine, case: str) -> str | None:
    """Why time cannot tell for `case`; None where it can."""
    if case not in PAIRS:
        return "time is not asked: more than a request brings this case back"
    return None if engine.repeatable else "time is not asked: no cold request can be repeated"
