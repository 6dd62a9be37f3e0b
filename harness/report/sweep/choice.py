"""Which point of a sweep to choose. Only points that were asked the same can be compared: what a text, a
model or a seed costs says nothing about the options beside it."""

import math
from typing import Any

from harness.report.sweep import verdicts as grid
from harness.report.sweep.baseline import CONTROL, policies
from harness.report.sweep.distance import far, missed, off, other_tokens, rounded
from harness.report.sweep.variation import asks, group
from harness.snapshot.result import ORDER

HEADER = 1.001  # a snapshot no larger than that has but another digit in its header
CLEAR = 10.0  # so many times another's time per token is no noise, where every question has it
ROUNDING = grid.rank("equivalent")  # no verdict up to here leaves anything to be nearer to
FEW = 3  # questions that are named one by one

APART = " is marked"  # the sentence of points that are best in one question and not in another
UNTOUCHED = ", your cache left as it was"
# By its verdict: what the smallest is that, and what points are called which nothing else was needed to choose: where
# each is the only one of its question, and where it is one of several.
KEPT = {
    "exact": (" that is exact", "The only exact point", "Exact"),
    "equivalent": (" within rounding", "The only one within rounding", "Within rounding"),
    "drifted": (" with the same tokens", "The only one with the same tokens", "The same tokens"),
    "diverged": (" with the right answer", "The only right answer", "The right answer"),
}
NOTHING = ("", "The best", "The best")  # is kept

Row = dict[str, Any]
Options = dict[tuple[str, ...], Row]


def able(rows: list[Row], touched: bool = True) -> list[Row]:
    """The points that come first before their bytes count: meeting what is required, then the right answer, a
    caller's cache that is left as it was (`touched`: where that counts), a better verdict. What misses all of that is told apart by how far off it is: the mean KL divergence to two digits;
    where there is none, the first step with another token."""

    def rank(row: Row) -> tuple[Any, ...]:
        verdict, short = grid.rank(row["verdict"]), int(row["exit_code"]) != 0
        away = off(row) if missed(row) else (0.0, 0.0)
        return (short, row.get("answer") == "wrong", touched and _written(row), verdict, *away)

    measured = [row for row in rows if row["verdict"] not in grid.STOPPED]
    first = min(map(rank, measured), default=None)
    return [row for row in measured if rank(row) == first]


def best(rows: list[Row]) -> list[Row]:
    """The points to choose among those that were asked the same, all that tie; none where all are alike in
    all that counts, and where every one writes into the caller's cache: those that are `able`, and of them the
    smallest."""
    tied = able(rows)
    least = min(map(_stored, tied), default=0.0)
    tied = [row for row in tied if _stored(row) <= HEADER * least]
    tied = [row for row in tied if not _written(row)]
    measured = [row for row in rows if row["verdict"] not in grid.STOPPED]
    return tied if len(tied) < len(measured) else []


def nearest(rows: list[Row]) -> list[Row]:
    """Those of the points that are `able` and no rounding of one another whose logits are nearest to the full
    cache's; none where all are as near."""
    first = able(rows)
    if any(grid.rank(row["verdict"]) <= ROUNDING for row in first):
        return []
    least = min(map(far, first), default=math.inf)
    near = [r for r in first if rounded(far(r)) <= rounded(least + (r.get("noise_kl_max") or 0))]
    return near if len(near) < len(first) else []


def chosen(rows: list[Row], axes: list[str]) -> list[Row]:
    """The best points of each question, where there are some, and no control where a policy is to be chosen."""
    some = leading(rows, axes)
    if some and all(row.get("prune") == CONTROL for row in some):
        others = policies(rows, axes)
        alone = len(group(others, [a for a in axes if asks(a)])) == len(others)
        return others if alone else leading(others, axes)
    return some


def leading(rows: list[Row], axes: list[str]) -> list[Row]:
    """The best points of each question, a control among them. Of those that tie, the nearest to the full cache are taken where these are the same in every question; one that
    another beats by `CLEAR` in its time per token is left out, but only where that is so in every one of several
    questions: less is noise, and once is too (the first point of a sweep warms up)."""
    groups = group(rows, [a for a in axes if asks(a)])
    options = [a for a in axes if not asks(a)]
    tied = [_by_option(best(some), options) for some in groups.values()]
    near = [_by_option(nearest(some), options) for some in groups.values()]
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


def _option(row: Row, options: list[str]) -> tuple[str, ...]:
    return tuple(str(row[a]) for a in options)


def _by_option(rows: list[Row], options: list[str]) -> Options:
    return {_option(row, options): row for row in rows}


def _written(row: Row) -> bool:
    """Whether the caller's cache was written into."""
    return str(row.get("mutated")) == "True"


def _stored(row: Row) -> float:
    return row.get("stored_bytes") or math.inf


def _seconds(row: Row) -> float:
    return row.get("per_token_s") or math.inf


def short_of(rows: list[Row]) -> str:
    """What no point of a sweep reaches, in one sentence; empty where one does."""
    if all(int(row["exit_code"]) for row in rows):
        return f"None of {len(rows)} is as required."
    if all(other_tokens(row) or row["verdict"] in grid.STOPPED for row in rows):
        return f"None of {len(rows)} keeps the tokens."
    return ""


def lacking(axes: list[str], rows: list[Row]) -> list[list[Row]]:
    """The points of each question to which none is good enough; all in one where that is so of the sweep."""
    if short_of(rows):
        return [rows]
    return [some for some in group(rows, [a for a in axes if asks(a)]).values() if short_of(some)]


def marks(winners: list[Row], axes: list[str], rows: list[Row]) -> dict[str, str]:
    """The points that are marked: as best, or as no more than the nearest."""
    near = {row["point"] for some in lacking(axes, rows) for row in some}
    return {r["point"]: "best nearest" if r["point"] in near else "best" for r in winners}


def told(winners: list[Row], axes: list[str], rows: list[Row], so_far: str = "") -> str:
    """What to choose, in a sentence: the point, or what is best whatever was asked; empty for nothing. Where
    no point that was asked the same is good enough, that comes first, and the nearest. so_far: the words for
    a sweep that is not complete."""
    if not winners:
        return ""
    if short := short_of(rows):
        return f"{short} The nearest{so_far}{_which(winners, axes, rows)}"
    lacks = lacking(axes, rows)
    near = [row for some in lacks for row in some]
    if not near:
        return _best(winners, axes, rows, so_far)
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
            said.append(f"The nearest there{so_far}{_which(some, known, mine, other)}")
        elif some:
            said.append(_best(some, known, mine, so_far, other))
    return " ".join(said)


def _best(
    winners: list[Row], axes: list[str], rows: list[Row], so_far: str, other: str = ""
) -> str:
    """The best points, by what they are that, and the nearest to the full cache where these are others."""
    which = _which(winners, axes, rows, other)
    if which.startswith(APART):
        return f"The best{so_far}{which}"
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    groups = group(rows, questions)
    mine = group(winners, questions)
    asked = [(groups[name], _by_option(some, options)) for name, some in mine.items()]
    near = [_by_option(nearest(some), options) for some, _ in asked]
    level = max(grid.rank(row["verdict"]) for row in winners)
    other_text = any(map(missed, winners))  # with no right answer that makes up for it
    kept, alone, shared = NOTHING if other_text else KEPT.get(ORDER[level], NOTHING)
    only = len(set.union(*(set(own) for _, own in asked))) == max(len(own) for _, own in asked)
    alone = alone if only else shared
    words = ["smallest"] * any(_smaller(some) for some, _ in asked)
    words += ["nearest"] * all(own.keys() <= by.keys() for by, (_, own) in zip(near, asked))
    words += ["fastest"] * any(_faster(some, own, by) for by, (some, own) in zip(near, asked))
    head = " and ".join(words).capitalize() + " to the full cache (by mean KL)" * (
        words == ["nearest"]
    )
    said = f"{head}{so_far}{kept * ('nearest' not in words)}" if words else f"{alone}{so_far}"
    if any(map(_written, able(rows, False))) and not any(map(_written, winners)):
        said += UNTOUCHED + "," * which.startswith(" ")
    there = set.intersection(*map(set, near))
    if "nearest" in words or not there:
        return f"{said}{which}"
    named, _ = _named(there, options, questions, rows)
    points = [row for by in near for row in by.values()]
    how = (
        f" (mean KL {points[0]['kl_mean']:.3g} nats)"
        if points[0].get("kl_mean") and not near[1:]
        else ""
    )
    return f"{said}{which[:-1]}; nearest to the full cache: {named}{how}."


def _faster(rows: list[Row], own: Options, near: Options) -> bool:
    """Whether time chose `own` among the points that tie in all else."""
    tied = {id(row) for row in best(rows)}
    if own.keys() <= near.keys():
        tied &= {id(row) for row in near.values()}
    return len(tied) > len(own)


def _smaller(rows: list[Row]) -> bool:
    """Whether bytes chose among the points that are `able`."""
    sizes = list(map(_stored, able(rows)))
    return max(sizes) > HEADER * min(sizes)


def _which(winners: list[Row], axes: list[str], rows: list[Row], other: str = "") -> str:
    """Which point, as the rest of a sentence: one that is best in every question, where there is one. other: as
    a word, where these are not all questions."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    groups: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for row in winners:
        groups.setdefault(_option(row, questions), set()).add(_option(row, options))
    every, alike = " and ".join(questions), set.intersection(*groups.values())
    each = f"value of {every}" if every.endswith("s") else every
    if not alike:
        said = _each(groups, options, questions, rows)
        return f"{APART} for each {each} ({said}): points are compared where {every} is the same."
    named, same = _named(alike, options, questions, rows)
    if len(groups) > 1:
        asked = group(rows, questions)
        ran, ended = (
            {
                name: {
                    _option(row, options)
                    for row in some
                    if (row["verdict"] in grid.STOPPED) is stopped
                }
                for name, some in asked.items()
            }
            for stopped in (False, True)
        )
        lacks = [name for name, some in ran.items() if not alike <= some]
        if not lacks:
            return f" for every{other} {each}: {named}{same}."
        there = [_where(questions, name) for name in ran if name not in lacks]
        few = (
            " or ".join(there)
            if len(there) <= FEW
            else f"it ran, in {len(there)} of {len(ran)} questions"
        )
        came = [
            name for name in lacks if alike & ended[name]
        ]  # the sweep did not get to the others
        failed = " or ".join(_where(questions, name) for name in came[:FEW])
        failed += f" or {len(came) - FEW} more" * (len(came) > FEW)
        return f" where {few}: {named}{same}{f'; it came to no end where {failed}' * bool(came)}."
    row = winners[0]
    facts = [grid.word(row), *([f"{row['answer']} answer"] if row.get("answer") else [])]
    if missed(row) and row.get("kl_mean") is not None:
        facts.append(f"mean KL {row['kl_mean']:.3g} nats")
    if row.get("stored_bytes"):
        facts.append(f"{row['stored_bytes']:,} bytes")
    where = f" where {' '.join(f'{a}={row[a]}' for a in questions)}" * bool(questions)
    return f"{where}: {named} ({', '.join(facts)}){same}."


def _where(questions: list[str], values: tuple[str, ...]) -> str:
    return " ".join(f"{q}={v}" for q, v in zip(questions, values))


def _each(
    groups: dict[tuple[str, ...], set[tuple[str, ...]]], options: list[str], questions: list[str], rows: list[Row]
) -> str:  # fmt: skip
    """The best options of each question; of many questions the first ones, and how many more there are."""
    told = [
        f"{_named(own, options, questions, rows)[0]} where {_where(questions, name)}"
        for name, own in groups.items()
    ]
    return "; ".join([*told[:FEW], *[f"{len(told) - FEW} more"] * (len(told) > FEW)])


def _named(
    alike: set[tuple[str, ...]], options: list[str], questions: list[str], rows: list[Row]
) -> tuple[str, str]:
    """The options of points that tie, and, as the rest of the sentence, those that make no difference: in
    no point, or in none of these."""
    order = [option for row in rows if (option := _option(row, options)) in alike]
    values = [list(dict.fromkeys(column)) for column in zip(*order, strict=True)]
    if math.prod(map(len, values)) > len(alike):  # no whole block of a grid
        points = (" ".join(f"{a}={v}" for a, v in zip(options, o)) for o in dict.fromkeys(order))
        return " or ".join(points), ""
    free = [a for a, vs in zip(options, values) if 1 < len(vs) == len({str(r[a]) for r in rows})]
    named = " ".join(f"{a}={' or '.join(vs)}" for a, vs in zip(options, values) if a not in free)
    fixed = [*questions, *(a for a in options if a not in free)]
    if not free:
        return named, ""
    if not all(map(_level, group(rows, fixed).values())):
        read = [a for a in free if not unread(a, [r for r in rows if _option(r, options) in alike])]
        return named, f", where every value of {' and '.join(read)} ties" if read else ""
    return named, f"; {' and '.join(free)} make{'s' * (len(free) == 1)} no difference"


def unread(axis: str, rows: list[Row]) -> bool:
    """Whether an axis is a key of an option that none of these points has: `prune.ratio` of `prune=none`."""
    return "." in axis and all(row.get(axis.partition(".")[0]) == "none" for row in rows)


def _level(rows: list[Row]) -> bool:
    """Whether none of these points is better than another."""
    return not best(rows) and len({row["verdict"] in grid.STOPPED for row in rows}) == 1
