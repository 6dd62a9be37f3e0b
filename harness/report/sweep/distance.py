"""How far a point of a sweep is from the run that was never interrupted."""

import math
from typing import Any

AS_NEAR = 0.05  # of the larger of two divergences: where they are no further apart they tie

Row = dict[str, Any]


def missed(row: Row) -> bool:
    """Whether it is told apart by how far off it is."""
    return other_tokens(row) or int(row["exit_code"]) != 0


def other_tokens(row: Row) -> bool:
    """Whether its tokens are others, and no right answer makes up for that."""
    return row["verdict"] == "diverged" and row.get("answer") != "right"


def off(row: Row) -> tuple[float, float]:
    """How far a point is from the uninterrupted run, the nearest first."""
    kl, first = row.get("kl_mean"), row.get("first_divergence")
    if kl is not None:
        return (float(kl), 0.0)
    return (math.inf, -math.inf if first is None else -first)


def far(row: Row) -> float:
    """How far its logits are from the full cache's."""
    known = (row.get(key) for key in ("kl_mean", "max_abs_diff"))
    return next((float(value) for value in known if value is not None), math.inf)


def as_near(divergence: Any, least: Any) -> bool:
    """Whether a divergence is no larger than another, or ties with it."""
    return float(divergence) <= max(float(least), float(least) / (1 - AS_NEAR))


def as_off(row: Row, least: tuple[float, float]) -> bool:
    """Whether a point ties with one that is `least` off."""
    divergence, first = off(row)
    return as_near(divergence, least[0]) and first == least[1]
