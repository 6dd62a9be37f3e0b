"""What a page says beside the nearest point: which point has more of its tokens the same, and whether it is a control."""

from typing import Any

from harness.report import plots
from harness.report.choice import able
from harness.report.distance import missed

SAME = "top1_agreement"
CONTROL = "random"  # a pruning that keeps tokens at random, beside which policies are seen

Row = dict[str, Any]


def sentence(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which these are, where one measure chose `winners` and the other chooses another; empty elsewhere."""
    if not winners or not all(missed(row) and row.get("kl_mean") is not None for row in winners):
        return ""
    said = []
    known = [row for row in _able(rows) if row.get(SAME) is not None]
    best = max((row[SAME] for row in known), default=0.0)
    mine = max((row.get(SAME) or 0.0 for row in winners), default=0.0)
    if known and best > mine:
        names = dict.fromkeys(_name(row, axes) for row in known if row[SAME] == best)
        told = " or ".join(names) if len(names) <= 2 else f"{len(names)} others"
        said.append(f"Most tokens the same: {told} ({best:.0%}, the nearest {mine:.0%}).")
    if all(row.get("prune") == CONTROL for row in winners):
        said.append(f"prune={CONTROL} is a control, no policy.")
    return " ".join(said)


def _able(rows: list[Row]) -> list[Row]:
    """The points that mean KL chose among: as `choice.able`, whatever their divergence."""
    level = [{**row, "kl_mean": 0.0} for row in rows]
    names = {row["point"] for row in able(level)}
    return [row for row in rows if row["point"] in names]


def _name(row: Row, axes: list[str]) -> str:
    return " ".join(f"{axis}={plots.short(row[axis])}" for axis in axes)
