"""How far a point of a sweep is from the run that was never interrupted."""

import math
from typing import Any

DIGITS = ".2g"  # of a divergence, that tell two points apart: where these are the same they tie

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
        return (rounded(kl), 0.0)
    return (math.inf, -math.inf if first is None else -first)


def far(row: Row) -> float:
    """How far its logits are from the full cache's."""
    known = (row.get(key) for key in ("kl_mean", "max_abs_diff"))
    return next((float(value) for value in known if value is not None), math.inf)


def rounded(divergence: float) -> float:
    """A divergence to as many digits as decide."""
    return float(f"{divergence:{DIGITS}}")
