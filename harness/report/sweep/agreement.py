"""What is said beside the nearest point: which are as near, which has more of its tokens the same, and whether it is
a control."""

from typing import Any

from harness.report.picture import plots
from harness.report.sweep import tie
from harness.report.sweep.choice import able, asks, group
from harness.report.sweep.distance import missed

SAME = "top1_agreement"
CONTROL = "random"  # a pruning that keeps tokens at random, beside which policies are seen

Row = dict[str, Any]


def beside(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """All of it, in sentences; empty where there is nothing."""
    return " ".join(filter(None, (say(winners, axes, rows) for say in (tie.sentence, sentence))))


def sentence(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which these are, where one measure chose `winners` and the other chooses another; empty elsewhere."""
    if not winners or not all(missed(row) and row.get("kl_mean") is not None for row in winners):
        return ""
    said = []
    known = [row for row in _able(rows) if row.get(SAME) is not None]
    best = max((row[SAME] for row in known), default=0.0)
    mine = max((row.get(SAME) or 0.0 for row in winners), default=0.0)
    if known and best > mine:
        names = _names([row for row in known if row[SAME] == best], axes, rows)
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


def _names(best: list[Row], axes: list[str], rows: list[Row]) -> list[str]:
    """The points `best` by what varies; by their options alone where these are so in every question."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    every = len(group(rows, questions))
    names = []
    for some in group(best, options).values():
        shown = options if options and len(some) == every else axes
        names += [" ".join(f"{axis}={plots.short(row[axis])}" for axis in shown) for row in some]
    return list(dict.fromkeys(names))
