"""Which setting is best over all seeds, where each seed by itself has another best: a seed is none to be chosen."""

from collections import Counter
from statistics import median
from typing import Any

from harness.report.sweep import verdicts as grid
from harness.report.sweep.baseline import CONTROL, policies
from harness.report.sweep.choice import (
    HEADER,
    leading,
    option,
    short_of,
    stored,
    written,
)
from harness.report.sweep.distance import far, missed, rounded
from harness.report.sweep.variation import asks, group, is_seed
from harness.report.sweep.which import called

Row = dict[str, Any]


def chosen(rows: list[Row], axes: list[str], once: bool = False) -> list[Row]:
    """The points to choose: those of the setting that is best over the seeds, or the best of each question. once: as
    of `choice.leading`."""
    return (not once and points(rows, axes)) or of_each(rows, axes, once)


def of_each(rows: list[Row], axes: list[str], once: bool = False) -> list[Row]:
    """The best points of each question, where there are some, and no control where a policy is to be chosen."""
    some = leading(rows, axes, once)
    if some and all(row.get("prune") == CONTROL for row in some):
        others = policies(rows, axes)
        alone = len(group(others, [a for a in axes if asks(a)])) == len(others)
        return others if alone else leading(others, axes, once)
    return some


def points(rows: list[Row], axes: list[str]) -> list[Row]:
    """All points of the settings that are best over the seeds, in the order of `choice.able` and `choice.best`: by how
    many of their points come behind, and by medians. Empty where anything but seeds was asked, where one setting is
    best with every seed, and where a setting is without some seed."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    seeds, settings = group(rows, questions), group(policies(rows, axes), options)
    if not options or not questions or not all(map(is_seed, questions)):
        return []
    if any(len(some) != len(seeds) for some in settings.values()):
        return []
    each = group(of_each(rows, axes), questions).values()
    if not each or set.intersection(*({option(r, options) for r in some} for some in each)):
        return []
    tied = [some for some in settings.values() if _measured(some) and not any(map(written, some))]
    first = min(map(_rank, tied), default=None)
    tied = [some for some in tied if _rank(some) == first]
    least = min(map(_bytes, tied), default=0.0)
    tied = [some for some in tied if _bytes(some) <= HEADER * least]
    near = min(map(_far, tied), default=0.0)
    tied = [some for some in tied if _far(some) == near]
    return [row for some in tied for row in some]


def sentence(winners: list[Row], axes: list[str], rows: list[Row], so_far: str = "") -> str:
    """Which setting that is, its verdicts and how far off it is over the seeds; empty where `winners` are others."""
    best = points(rows, axes)
    if not best or {r["point"] for r in best} != {r["point"] for r in winners}:
        return ""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    named, same = called({option(row, options) for row in best}, options, questions, rows)
    over = f"over {len(group(rows, questions))} values of {' and '.join(questions)}"
    facts = [", ".join(f"{n} {word}" for word, n in Counter(map(grid.word, best)).items())]
    if any(row.get("answer") for row in best):
        facts.append(f"{sum(row.get('answer') == 'right' for row in best)} right")
    values = [float(r["kl_mean"]) for r in _measured(best) if r.get("kl_mean") is not None]
    if values:
        low, high = min(values), max(values)
        spread = f", {low:.3g} to {high:.3g}" * (low != high)
        facts.append(f"mean KL {median(values):.3g} nats in the median{spread}")
    short = short_of(rows)
    what = "The nearest" if short or all(map(missed, best)) else "The best"
    return f"{short} {what} {over}{so_far}: {named} ({'; '.join(facts)}){same}.".strip()


def _measured(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] not in grid.STOPPED]


def _rank(rows: list[Row]) -> tuple[Any, ...]:
    """Where a setting stands before its bytes count, the best first."""
    short, wrong = (int(row["exit_code"]) != 0 for row in rows), (r.get("answer") == "wrong" for r in rows)  # fmt: skip
    ranks = sorted((grid.rank(row["verdict"]) for row in rows), reverse=True)
    return sum(short), sum(wrong), ranks, _far(rows) if any(map(missed, rows)) else 0.0


def _bytes(rows: list[Row]) -> float:
    return median(map(stored, _measured(rows)))


def _far(rows: list[Row]) -> float:
    return rounded(median(map(far, _measured(rows))))
