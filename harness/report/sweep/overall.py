"""Which setting is best over all seeds, where each seed by itself has another best: a seed is none to be chosen."""

from collections import Counter
from math import comb
from statistics import median
from typing import Any

from harness.report.sweep import choice, damaged, distance, earlier
from harness.report.sweep import verdicts as grid
from harness.report.sweep.baseline import CONTROL, policies
from harness.report.sweep.choice import (
    HEADER,
    gone,
    leading,
    option,
    short_of,
    stored,
    written,
)
from harness.report.sweep.distance import missed
from harness.report.sweep.variation import asks, group, is_seed
from harness.report.sweep.which import called

SURE = 0.05  # how likely so clear a difference is by chance alone, at most

Row = dict[str, Any]


def chosen(rows: list[Row], axes: list[str], once: bool = False) -> list[Row]:
    """The points to choose: those of the setting that is best over the seeds, or the best of each question. once: as
    of `choice.leading`."""
    if damaged.varied(axes):
        return []
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
    many of their points come behind, and by medians. Empty as `able` is."""
    tied = able(rows, axes)
    least = min(map(size, tied), default=0.0)
    tied = [some for some in tied if size(some) <= HEADER * least]
    near = min(map(far, tied), default=0.0)
    return [row for some in tied if distance.as_near(far(some), near) for row in some]


def able(rows: list[Row], axes: list[str]) -> list[list[Row]]:
    """The settings that come first before their bytes count, each with its points. Empty where anything but seeds was
    asked, where one setting is best with every seed, and where a setting is without some seed."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    seeds, settings = group(rows, questions), group(policies(rows, axes), options)
    if not options or not questions or not all(map(is_seed, questions)):
        return []
    if any(len(some) != len(seeds) for some in settings.values()):
        return []
    each = group(of_each(rows, axes), questions).values()
    if not each or set.intersection(*({option(r, options) for r in some} for some in each)):
        return []
    tied, passed = list(filter(_measured, settings.values())), gone(rows)
    tied = [some for some in tied if not any(written(row) or passed(row) for row in some)]
    first = min(map(_rank, tied), default=None)
    tied = [some for some in tied if _rank(some) == first]
    if not any(missed(row) for some in tied for row in some):
        return tied
    nearest = min(tied, key=far)
    return [some for some in tied if _as_near(some, nearest)]


def _as_near(some: list[Row], nearest: list[Row]) -> bool:
    """Whether a setting ties with the nearest: by its median, or by less than the seeds differ, where each median lies
    among the other's points and neither setting is the nearer one with every seed."""
    if distance.as_near(far(some), far(nearest)):
        return True
    mine, its = ([distance.far(row) for row in part] for part in (some, nearest))
    within = min(its) <= median(mine) <= max(its) and min(mine) <= median(its) <= max(mine)
    return within and any(a < b for a, b in zip(mine, its, strict=True))


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
    near, told = short or all(map(missed, best)), "; ".join(facts)
    if not named:  # all of them tie
        said = (
            f"No setting is {'nearer' if near else 'better'} than another {over}{so_far} ({told})."
        )
    else:
        said = f"The {'nearest' if near else 'best'} {over}{so_far}: {named} ({told}){same}."
        said = f"{said} {_doubt(best, rows, questions, options)}".rstrip()
    return f"{short} {said}".strip()


def _doubt(best: list[Row], rows: list[Row], questions: list[str], options: list[str]) -> str:
    """That so few seeds do not tell the one best setting from the next, in a sentence (sign test of its answers, or where
    both have as many right of its distance, seed by seed); empty where they do."""
    settings = group(policies(rows, [*questions, *options]), options)
    mine = {option(row, options) for row in best}
    others = {name: some for name, some in settings.items() if name not in mine and _measured(some)}
    if len(mine) != 1 or not others or not earlier.told():
        return ""
    name = min(others, key=lambda one: (*_rank(others[one]), far(others[one])))
    pairs = zip(group(best, questions).values(), group(others[name], questions).values())
    both = [(some[0], its[0]) for some, its in pairs]
    right = [sum(r.get("answer") == "right" for r in some) for some in (best, others[name])]
    mine_far, its_far = (
        [distance.far(row) for row in _measured(some)] for some in (best, others[name])
    )
    if right[0] == right[1] and max(mine_far) < min(its_far):
        return ""
    if right[0] == right[1]:
        apart = [a - b for a, b in (map(distance.far, pair) for pair in both) if a != b]
    else:
        apart = [_wrong(a) - _wrong(b) for a, b in both if _wrong(a) != _wrong(b)]
    fewer = min(sum(by > 0 for by in apart), sum(by < 0 for by in apart))
    if 2 * sum(comb(len(apart), k) for k in range(fewer + 1)) <= SURE * 2 ** len(apart):
        return ""
    there = called({name}, options, questions, rows)[0]
    told = f" ({right[0]} right and {right[1]})" if right[0] != right[1] else ""
    return f"{len(both)} seeds do not tell it from {there}{told}."


def _wrong(row: Row) -> int:
    return int(row.get("answer") == "wrong")


def marks(winners: list[Row], axes: list[str], rows: list[Row]) -> dict[str, str]:
    """The points that are marked, as `choice.marks`; of one setting over the seeds in one word, that of its sentence."""
    marked = choice.marks(winners, axes, rows)
    one = {r["point"] for r in points(rows, axes)} == {*marked}
    near = short_of(rows) or all(map(missed, winners))
    return dict.fromkeys(marked, "best nearest" if near else "best") if one else marked


def _measured(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["verdict"] not in grid.STOPPED]


def _rank(rows: list[Row]) -> tuple[Any, ...]:
    """Where a setting stands before its bytes count, the best first."""
    short, wrong = (int(row["exit_code"]) != 0 for row in rows), (r.get("answer") == "wrong" for r in rows)  # fmt: skip
    ranks = sorted((grid.rank(row["verdict"]) for row in rows), reverse=True)
    return sum(short), sum(wrong), ranks, any(map(missed, rows))


def size(rows: list[Row]) -> float:
    """The bytes of a setting, in the median."""
    return median(map(stored, _measured(rows)))


def far(rows: list[Row]) -> float:
    """How far off a setting is, in the median."""
    return median(map(distance.far, _measured(rows)))
