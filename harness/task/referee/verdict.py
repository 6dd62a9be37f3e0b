"""The verdict on one case: what came out of the cache against what comes out without it.

The scale is the noise floor of this engine, here and now: how far its cold runs of other composition lie
apart, twice that at most. A float64 oracle can only add to that: the error against it, too, is at most
twice that of the engine's own cold runs, as in the FlashAttention tests.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.task.referee.reasons import Reason

FACTOR = 2.0
GOOD = ("exact", "equivalent")
ORDER = ("exact", "equivalent", "unjudged", "drifted", "diverged", "unsound")
Z = 1.96  # a 95 % interval


def decide(
    metrics: Mapping[str, Any], floor: float, plain: float | None = None
) -> tuple[str, Reason]:
    """`(verdict, reason)` for one comparison. floor: in nats of log-probability. plain: the largest
    error of cold runs against float64; `metrics` then has the `errors` of this one, step by step."""
    other = metrics["first_divergence"]
    if not metrics["steps"] and not metrics["missing"]:
        return "unjudged", Reason("no_token")
    if other is None and metrics["missing"]:
        return "diverged", Reason("ended_early", {k: metrics[k] for k in ("steps", "missing")})
    if metrics["bitwise_equal"]:
        return "exact", Reason("exact")
    args = {"difference": metrics["max_abs_diff"], "noise_floor": floor}
    within = metrics["max_abs_diff"] <= FACTOR * floor < math.inf
    if plain is not None:
        args |= {"error": max(metrics["errors"]), "plain": plain}
        within = within and args["error"] <= FACTOR * plain
    if other is not None and not (within and metrics["lead"] <= FACTOR * floor):
        return "diverged", Reason("other_token", args | {"token": other + 1})
    return ("equivalent", Reason("within", args)) if within else ("drifted", Reason("beyond", args))


def first_beyond(
    metrics: Mapping[str, Any], floor: float, plain: float | None = None
) -> int | None:
    """The first step that no noise explains."""
    rows = [(gap, floor) for gap in metrics["gaps"]]
    errors = [(error, plain) for error in metrics["errors"]] if plain is not None else []
    beyond = (
        i
        for pairs in (rows, errors)
        for i, (far, scale) in enumerate(pairs)
        if far > FACTOR * scale
    )
    return min(beyond, default=metrics["first_divergence"])


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
