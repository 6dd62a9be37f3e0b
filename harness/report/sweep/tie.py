"""Points of a sweep that are as near to the full cache as those that are marked, which only have fewer bytes."""

from typing import Any

from harness.report.picture import plots
from harness.report.sweep.choice import able
from harness.report.sweep.distance import missed, rounded
from harness.report.sweep.variation import asks
from harness.report.sweep.which import FEW

Row = dict[str, Any]


def sentence(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which these are; empty where there are none, where no divergence was to choose by, and of several questions."""
    if not winners or any(map(asks, axes)):
        return ""
    if any(row.get("kl_mean") is None or not missed(row) for row in winners):
        return ""
    names = {row["point"] for row in winners}
    others = [row for row in able(rows) if row["point"] not in names]
    if not others:
        return ""
    called = [" ".join(f"{a}={plots.short(row[a])}" for a in axes) for row in others]
    told = [*called[:FEW], *[f"{len(called) - FEW} more"] * (len(called) > FEW)]
    nats = f"{rounded(winners[0]['kl_mean']):g} nats"
    one = not winners[1:]
    verbs = ("ties", "takes") if one else ("tie", "take")
    return f"The nearest {verbs[0]} with {' and '.join(told)} to two digits ({nats}) and {verbs[1]} the fewest bytes."
