"""The verdict on one case: what came out of the cache against what comes out without it.

The scale is the noise floor of this engine, here and now: how far its own cold runs of other
composition lie apart. Twice the floor is allowed, as in the FlashAttention tests.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

FACTOR = 2.0
GOOD = ("exact", "equivalent")
ORDER = ("exact", "equivalent", "unjudged", "drifted", "diverged", "unsound")
Z = 1.96  # a 95 % interval


def decide(metrics: Mapping[str, Any], floor: float) -> tuple[str, str]:
    """`(verdict, reason)` for one comparison. floor: in nats of log-probability."""
    gap, other = metrics["max_abs_diff"], metrics["first_divergence"]
    if not metrics["steps"]:
        return "unjudged", "the engine answered without a single token"
    if metrics["bitwise_equal"]:
        return "exact", "every log-probability is bit-equal to the cold run's"
    rule = f"largest difference {gap:.3g} nats, noise floor {floor:.3g}"
    within = gap <= FACTOR * floor
    if other is not None and not (within and metrics["lead"] <= FACTOR * floor):
        return "diverged", f"token {other} after the cache is another one; {rule}"
    return ("equivalent", rule) if within else ("drifted", f"{rule}; every token is the same")


def first_beyond(metrics: Mapping[str, Any], floor: float) -> int | None:
    """The first step that no noise explains."""
    gaps = metrics["gaps"]
    return next((i for i, gap in enumerate(gaps) if gap > FACTOR * floor), metrics["first_divergence"])  # fmt: skip


def worst(verdicts: Sequence[str]) -> str:
    return max(verdicts, key=ORDER.index, default="unjudged")


def interval(hits: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate."""
    if not of:
        return 0.0, 1.0
    rate, z2 = hits / of, Z * Z
    middle = (rate + z2 / (2 * of)) / (1 + z2 / of)
    half = Z / (1 + z2 / of) * math.sqrt(rate * (1 - rate) / of + z2 / (4 * of * of))
    return max(middle - half, 0.0), min(middle + half, 1.0)
