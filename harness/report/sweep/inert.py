"""A sweep over seeds that draw nothing: greedy sampling takes the most likely token whatever the seed is."""

from typing import Any

from harness.report.sweep.variation import group
from harness.report.sweep.verdicts import STOPPED

DRAWS = "The seed draws nothing with sampling=greedy."
MEASURED = ("verdict", "kl_mean", "max_abs_diff", "top1_agreement")  # the same for each seed then

Row = dict[str, Any]


def inert(rows: list[Row], axes: list[str]) -> bool:
    """Whether `seed` was varied and draws nothing: greedy, and every figure the same for each of its values."""
    main = all(r.get("task") == "experiment" and r.get("sampling") == "greedy" for r in rows)
    if "seed" not in axes or not main or any(r["verdict"] in STOPPED for r in rows):
        return False
    groups = group(rows, [a for a in axes if a != "seed"]).values()
    return all(len({tuple(r.get(k) for k in MEASURED) for r in some}) == 1 for some in groups)


def sentence(rows: list[Row], axes: list[str]) -> str:
    """That it draws nothing, where it was varied all the same; empty of another sweep."""
    return DRAWS if rows[1:] and inert(rows, axes) else ""
