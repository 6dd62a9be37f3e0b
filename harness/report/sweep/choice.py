"""Which point of a sweep to choose. Only points that were asked the same can be compared: what a text, a
model or a seed costs says nothing about the options beside it."""

import math
from collections.abc import Callable
from typing import Any

from harness.report.sweep import verdicts as grid
from harness.report.sweep.distance import as_near, as_off, far, missed, off, other_tokens
from harness.report.sweep.variation import asks, group

HEADER = 1.001  # a snapshot no larger than that has but another digit in its header
CLEAR = 10.0  # so many times another's time per token is no noise, where every question has it
ROUNDING = grid.rank("equivalent")  # no verdict up to here leaves anything to be nearer to

Row = dict[str, Any]
Options = dict[tuple[str, ...], Row]


def able(rows: list[Row], touched: bool = True) -> list[Row]:
    """The points that come first before their bytes count: meeting what is required, then the right answer, a
    caller's cache that is left as it was, keys and values on the disk (`touched`: where these two count), a better verdict. What is not as required,
    or has other tokens and no right answer, keeps nothing that fewer bytes could keep as well: it is told apart by how
    far off it is, the mean KL divergence, of which those as near as the nearest tie; where there is none, the first step
    with another token."""

    def rank(row: Row) -> tuple[Any, ...]:
        verdict, short = grid.rank(row["verdict"]), int(row["exit_code"]) != 0
        wrong = row.get("answer") == "wrong"
        return (short, wrong, touched and (written(row), passing(row)), verdict, missed(row))

    measured = [row for row in rows if row["verdict"] not in grid.STOPPED]
    first = min(map(rank, measured), default=None)
    tied = [row for row in measured if rank(row) == first]
    if not any(map(missed, tied)):
        return tied
    least = min(map(off, tied))
    return [row for row in tied if as_off(row, least)]


def best(rows: list[Row], alone: bool = True) -> list[Row]:
    """The points to choose among those that were asked the same, all that tie; none where all are alike in
    all that counts, and where every one writes into the caller's cache; none of memory beside one on the disk: those that are `able`, and of them the
    smallest. alone: they were asked the one question there was, where a point that came to no end is none to be better
    than; of several questions each has its best."""
    tied = able(rows)
    least = min(map(stored, tied), default=0.0)
    tied = [row for row in tied if stored(row) <= HEADER * least]
    tied = _kept(tied, rows)
    measured = [row for row in rows if row["verdict"] not in grid.STOPPED]
    several = measured[1:] and not alone  # one that had no rival is the best of none
    return tied if len(tied) < len(rows if several else measured) else []


def nearest(rows: list[Row]) -> list[Row]:
    """Those of the points that are `able` and no rounding of one another whose logits are nearest to the full
    cache's; none where all are as near."""
    first = able(rows)
    if any(grid.rank(row["verdict"]) <= ROUNDING for row in first):
        return []
    least = min(map(far, first), default=math.inf)
    near = [r for r in first if as_near(far(r), least + (r.get("noise_kl_max") or 0))]
    return near if len(near) < len(first) else []


def leading(rows: list[Row], axes: list[str], once: bool = False) -> list[Row]:
    """The best points of each question, a control among them. Of those that tie, the nearest to the full cache are taken
    where these are the same in every question, and where all points of a question tie; one that another beats by
    `CLEAR` in its time per token is left out, but only where that is so in every one of several questions: less is noise, and once is too (the first point of a sweep warms up). once: as older versions, which had
    no best point of a question where all tie."""
    groups = [*group(rows, [a for a in axes if asks(a)]).values()]
    options = [a for a in axes if not asks(a)]
    if groups[1:] and not once and not any(best(some) or nearest(some) for some in groups):
        return []  # where points came to no end the others are no better than those of another question
    tied = [
        by_option(
            best(some, once or not groups[1:]) or ([] if once else _kept(nearest(some), some)),
            options,
        )
        for some in groups
    ]
    near = [by_option(nearest(some), options) for some in groups]
    near = [
        {o: r for o, r in by.items() if o in some} if some else by for some, by in zip(tied, near)
    ]
    if near and set.intersection(*map(set, near)):
        tied = near
    tied = [some for some in tied if some]

    def slow(option: tuple[str, ...]) -> bool:
        others = (other for other in (tied[0] if tied else ()) if other != option)
        return any(
            all(option in some and other in some for some in tied)
            and all(_seconds(some[other]) * CLEAR < _seconds(some[option]) for some in tied)
            for other in others
        )

    lost = {option for some in tied for option in some if tied[1:] and slow(option)}
    return [row for some in tied for option, row in some.items() if option not in lost]


def _kept(some: list[Row], rows: list[Row]) -> list[Row]:
    """Those of `some` that may be chosen among `rows`."""
    passed = gone(rows)
    return [row for row in some if not written(row) and not passed(row)]


def gone(rows: list[Row]) -> Callable[[Row], bool]:
    """What tells the points that are none to choose among `rows`: those of which memory holds all, where another is on
    the disk."""
    there = any(not passing(row) for row in rows if row["verdict"] not in grid.STOPPED)
    return lambda row: there and passing(row)


def passing(row: Row) -> bool:
    """Whether its keys and values are in memory alone, and gone with their process."""
    return row.get("save") == "memory"


def option(row: Row, options: list[str]) -> tuple[str, ...]:
    """What a point has of these options."""
    return tuple(str(row[a]) for a in options)


def by_option(rows: list[Row], options: list[str]) -> Options:
    """The points by what they have of these options."""
    return {option(row, options): row for row in rows}


def written(row: Row) -> bool:
    """Whether the caller's cache was written into."""
    return str(row.get("mutated")) == "True"


def stored(row: Row) -> float:
    """How many bytes it takes, be its keys and values on the disk or in memory; infinitely many where that is
    unknown."""
    return (row.get("stored_bytes") or math.inf) + held(row)


def held(row: Row) -> int:
    """Those of them that are in memory alone, which `stored_bytes` does not count."""
    return (row.get("kv_bytes") or 0) * passing(row)


def _seconds(row: Row) -> float:
    return row.get("per_token_s") or math.inf


def short_of(rows: list[Row]) -> str:
    """What no point of a sweep reaches, in one sentence; empty where one does."""
    if all(int(row["exit_code"]) for row in rows):
        return f"None of {len(rows)} is as required."
    ran = [row for row in rows if row["verdict"] not in grid.STOPPED]
    if not all(map(other_tokens, ran)):
        return ""
    if len(ran) == len(rows):
        return f"None of {len(rows)} keeps the tokens."
    if len(ran) == 1:
        return "The only one that ran does not keep the tokens."
    return f"None of the {len(ran)} that ran keeps the tokens."


def lacking(axes: list[str], rows: list[Row]) -> list[list[Row]]:
    """The points of each question to which none is good enough; all in one where that is so of the sweep."""
    if short_of(rows):
        return [rows]
    return [some for some in group(rows, [a for a in axes if asks(a)]).values() if short_of(some)]


def marks(winners: list[Row], axes: list[str], rows: list[Row]) -> dict[str, str]:
    """The points that are marked: as best, or as no more than the nearest."""
    near = {row["point"] for some in lacking(axes, rows) for row in some}
    if all(map(missed, others := [row for row in winners if row["point"] not in near])):
        near |= {row["point"] for row in others}  # of what meets what is required
    return {r["point"]: "best nearest" if r["point"] in near else "best" for r in winners}
