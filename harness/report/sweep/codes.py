"""Quantizers that changed nothing: a point that is, figure by figure, the one of `quantize=none`."""

from typing import Any

from harness.report.picture import plots
from harness.report.sweep.variation import group
from harness.report.sweep.verdicts import STOPPED
from harness.report.sweep.which import FEW

GROUP, NONE = "quantize", "none"
MEASURED = ("kv_bytes", "kl_mean", "max_abs_diff", "top1_agreement")  # the same of both then

Row = dict[str, Any]


def idle(rows: list[Row], axes: list[str]) -> str:
    """Which these are, in a sentence; empty where there are none, or where no point is there to compare with."""
    others = [axis for axis in axes if axis.partition(".")[0] != GROUP]
    there: dict[str, list[str]] = {}
    groups = group(rows, others) if GROUP in axes else {}
    for asked, some in groups.items():
        plain = {_figures(row) for row in some if row[GROUP] == NONE}
        for row in some:
            judged = row["verdict"] not in STOPPED and row.get("kl_mean") is not None
            if row[GROUP] != NONE and judged and _figures(row) in plain:
                place = " ".join(f"{a}={plots.short(v)}" for a, v in zip(others, asked))
                there.setdefault(str(row[GROUP]), []).append(place)
    said = []
    for name, places in there.items():
        known = list(dict.fromkeys(places))
        more = [f"{len(known) - FEW} more"] * (len(known) > FEW)
        where = f" where {' or '.join([*known[:FEW], *more])}" * (len(known) < len(groups))
        said.append(
            f"{GROUP}={name} changed nothing{where}: its figures are those of {GROUP}={NONE}."
        )
    return " ".join(said)


def _figures(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in MEASURED)
