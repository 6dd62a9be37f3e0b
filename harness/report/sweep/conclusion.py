"""What to choose of a sweep, in a sentence: what the points that are chosen are the best of."""

from typing import Any

from harness.report.picture import plots
from harness.report.sweep import earlier, overall
from harness.report.sweep import verdicts as grid
from harness.report.sweep.baseline import CONTROL, policies
from harness.report.sweep.choice import (
    HEADER,
    Options,
    able,
    best,
    by_option,
    lacking,
    nearest,
    passing,
    short_of,
    stored,
    written,
)
from harness.report.sweep.distance import as_near, far, missed
from harness.report.sweep.variation import asks, group
from harness.report.sweep.which import APART, FEW, called, facts, pointed
from harness.snapshot.result import ORDER

UNTOUCHED = ", your cache left as it was"
LASTING = ", of those on disk"
# By its verdict: what the smallest is that, and what points are called which nothing else was needed to choose: where
# each is the only one of its question, and where it is one of several.
KEPT = {
    "exact": (" that is exact", "The only exact point", "Exact"),
    "equivalent": (" within rounding", "The only one within rounding", "Within rounding"),
    "drifted": (" with the same tokens", "The only one with the same tokens", "The same tokens"),
    "diverged": (" with the right answer", "The only right answer", "The right answer"),
}
AS_REQUIRED = " that is as required"
NOTHING = ("", "The best", "The best")  # is kept

Row = dict[str, Any]


def told(
    winners: list[Row], axes: list[str], rows: list[Row], so_far: str = "", once: bool = False
) -> str:
    """What to choose, in a sentence: the point, or what is best whatever was asked; empty for nothing. Where
    no point that was asked the same is good enough, that comes first, and the nearest. so_far: the words for
    a sweep that is not complete. once: as older versions told it."""
    if not winners:
        return "" if once else _alone(rows, axes)
    if over := overall.sentence(winners, axes, rows, so_far):
        return over
    control = not once and any(r.get("prune") == CONTROL for r in rows)
    nearest = f"nearest{' policy' * (control and policies(winners, axes) == winners)}"
    if short := short_of(rows):
        return f"{short} The {nearest}{so_far}{pointed(winners, axes, rows)}"
    lacks = lacking(axes, rows)
    near = [row for some in lacks for row in some]
    if not near:
        return _best(winners, axes, rows, so_far, once=once)
    questions, names = [a for a in axes if asks(a)], {row["point"] for row in near}
    where = [" ".join(f"{a}={some[0][a]}" for a in questions) for some in lacks]
    many = f"in {len(where)} of {len(group(rows, questions))} questions"
    place = f"where {' or '.join(where)}" if len(where) <= FEW else many
    short = short_of(near) or f"None of {len(near)} is good enough."
    said = [f"{short[:-1]} {place}."]
    there = axes if lacks[1:] else [a for a in axes if a not in questions]
    for inside, known, other in ((True, there, " such"), (False, axes, " other")):
        some, mine = (
            [r for r in part if (r["point"] in names) is inside] for part in (winners, rows)
        )
        if some and inside:
            said.append(f"The {nearest} there{so_far}{pointed(some, known, mine, other)}")
        elif some:
            said.append(_best(some, known, mine, so_far, other, once))
    return " ".join(said)


def _alone(rows: list[Row], axes: list[str]) -> str:
    """What the only point came to that is tried beside another, the full cache; empty of several, and of one that came
    to no end."""
    if len(rows) != 1 or not axes or rows[0]["verdict"] in grid.STOPPED:
        return ""
    named = " ".join(f"{axis}={plots.short(rows[0][axis])}" for axis in axes)
    return f"{named} ({facts(rows[0])})."


def _best(
    winners: list[Row],
    axes: list[str],
    rows: list[Row],
    so_far: str,
    other: str = "",
    once: bool = False,
) -> str:
    """The best points, by what they are that, and the nearest to the full cache where these are others."""
    which = pointed(winners, axes, rows, other)
    if which.startswith(APART):
        return f"The {'nearest' if all(map(missed, winners)) else 'best'}{so_far}{which}"
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    control = (
        not once
        and any(r.get("prune") == CONTROL for r in rows)
        and policies(winners, axes) == winners
    )  # not chosen
    groups = group(policies(rows, axes) if control else rows, questions)
    mine = group(winners, questions)
    asked = [(groups[name], by_option(some, options)) for name, some in mine.items()]
    near = [by_option(nearest(some), options) for some, _ in asked]
    level = max(grid.rank(row["verdict"]) for row in winners)
    other_text = not once and any(map(missed, winners))  # with no right answer that makes up for it
    kept, alone, shared = NOTHING if other_text else KEPT.get(ORDER[level], NOTHING)
    one = len(set.union(*(set(own) for _, own in asked))) == max(len(own) for _, own in asked)
    chosen = {row["point"] for row in winners}
    others = not once and any(
        row["point"] not in chosen and grid.rank(row["verdict"]) <= level
        for row in rows
        if row["verdict"] not in grid.STOPPED
    )  # a control, or one that writes into the cache
    alone = alone if one and not others else shared
    words = ["smallest"] * any(_smaller(some) for some, _ in asked)
    words += ["nearest"] * all(own.keys() <= by.keys() for by, (_, own) in zip(near, asked))
    words += ["fastest"] * any(_faster(some, own, by) for by, (some, own) in zip(near, asked))
    if other_text:  # how near they are came before their bytes
        words = ["nearest"] * all(map(missed, winners))
    kept, only = (
        (kept * ("nearest" not in words), "") if once else _qualified(words, kept, asked, winners)
    )
    head = " and ".join(words).capitalize()
    if words == ["nearest"]:
        head += f"{' policy' * control} to the full cache (by {_measure(winners, once)})"
    said = f"{head}{so_far}{kept}{only}" if words else f"{alone}{so_far}{only}"
    told = [
        words
        for words, lacks in ((UNTOUCHED, written), (LASTING, passing))
        if any(map(lacks, able(rows, False))) and not any(map(lacks, winners))
    ]
    said += "".join(told) + "," * (bool(told) and which.startswith(" "))
    there = set.intersection(*map(set, near))
    if "nearest" in words or not there:
        return f"{said}{which}"
    named, _ = called(there, options, questions, rows)
    points = [row for by in near for option, row in by.items() if option in there]
    if once or not earlier.told():  # of several the first
        points = [row for by in near for row in by.values()][:1]
    known, how = [float(row.get("kl_mean") or 0.0) for row in points], ""
    if all(known) and not near[1:]:
        ends = dict.fromkeys(f"{value:.3g}" for value in (min(known), max(known)))
        how = f" (mean KL {' to '.join(ends)} nats)"
    return f"{said}{which[:-1]}; nearest to the full cache: {named}{how}."


def _qualified(
    words: list[str], kept: str, asked: list[tuple[list[Row], Options]], winners: list[Row]
) -> tuple[str, str]:
    """What is said of winners that are these `words`: what they keep, and that they are as required. `nearest` says it
    by itself where no point that came behind them for another reason is as near."""
    first = {row["point"] for rows, _ in asked for row in able(rows, False)}
    measured = [r for rows, _ in asked for r in rows if r["verdict"] not in grid.STOPPED]
    behind = [row for row in measured if row["point"] not in first]
    if "nearest" in words:
        least = max(map(far, winners))
        behind = [row for row in behind if as_near(far(row), least)]
    elif kept:
        level = max(grid.rank(row["verdict"]) for row in winners)
        behind = [row for row in behind if grid.rank(row["verdict"]) <= level]
    short = [row for row in behind if int(row["exit_code"])]
    told = "nearest" not in words or len(short) < len(behind)
    return kept * told, AS_REQUIRED * bool(short)


def _measure(rows: list[Row], once: bool) -> str:
    """By what these points are called the nearest."""
    if once or all(row.get("kl_mean") is not None for row in rows):
        return "mean KL"
    return "the first other token" if any(map(missed, rows)) else "the largest difference"


def _faster(rows: list[Row], own: Options, near: Options) -> bool:
    """Whether time chose `own` among the points that tie in all else."""
    tied = {id(row) for row in best(rows)}
    if own.keys() <= near.keys():
        tied &= {id(row) for row in near.values()}
    return len(tied) > len(own)


def _smaller(rows: list[Row]) -> bool:
    """Whether bytes chose among the points that are `able`."""
    sizes = list(map(stored, able(rows)))
    return max(sizes) > HEADER * min(sizes)
