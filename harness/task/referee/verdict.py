"""The verdict on one case: what came out of the cache against what comes out without it.

With a float64 oracle: the error of what came out of the cache against it, at most twice that of the
engine's own cold runs, as in the FlashAttention tests. Without one the scale is the noise floor of
this engine, here and now: how far its cold runs of other composition lie apart, twice that at most.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

FACTOR = 2.0
GOOD = ("exact", "equivalent")
ORDER = ("exact", "equivalent", "unjudged", "drifted", "diverged", "unsound")
Z = 1.96  # a 95 % interval


def decide(metrics: Mapping[str, Any], floor: float, plain: float | None = None) -> tuple[str, str]:
    """`(verdict, reason)` for one comparison. floor: in nats of log-probability. plain: the largest
    error of cold runs against float64; `metrics` then has the `errors` of this one, step by step."""
    gap, other = metrics["max_abs_diff"], metrics["first_divergence"]
    if not metrics["steps"] and not metrics["missing"]:
        return "unjudged", "no run said a single token"
    if other is None and metrics["missing"]:
        ended = f"it ended after {metrics['steps']} tokens"
        return "diverged", f"{ended}, the cold run went on for {metrics['missing']} more"
    if metrics["bitwise_equal"]:
        return "exact", "every log-probability is bit-equal to the cold run's"
    rule = f"largest difference {gap:.3g} nats, noise floor {floor:.3g}"
    within = gap <= FACTOR * floor < math.inf
    if plain is not None:
        error = max(metrics["errors"])
        apart = "" if within else f"; {gap:.3g} from the cold run, whose noise is {floor:.3g}"
        within = error <= FACTOR * plain < math.inf
        rule = f"error {error:.3g} nats against float64, without the cache {plain:.3g}{apart}"
    if other is not None and not (within and metrics["lead"] <= FACTOR * floor):
        return "diverged", f"token {other + 1} after the cache is another one; {rule}"
    return ("equivalent", rule) if within else ("drifted", f"{rule}; every token is the same")


def first_beyond(
    metrics: Mapping[str, Any], floor: float, plain: float | None = None
) -> int | None:
    """The first step that no noise explains."""
    gaps, scale = (metrics["gaps"], floor) if plain is None else (metrics["errors"], plain)
    beyond = (i for i, gap in enumerate(gaps) if gap > FACTOR * scale)
    return next(beyond, metrics["first_divergence"])


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
