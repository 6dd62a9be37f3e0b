"""Which points a sweep's conclusion names: by their options, and where something else was asked by that."""

import math
from typing import Any

from harness.report.sweep import verdicts as grid
from harness.report.sweep.choice import best, held, option, stored
from harness.report.sweep.distance import missed
from harness.report.sweep.variation import asks, group, is_seed

FEW = 3  # questions that are named one by one
APART = " is marked"  # the sentence of points that are best in one question and not in another

Row = dict[str, Any]


def pointed(winners: list[Row], axes: list[str], rows: list[Row], other: str = "") -> str:
    """Which point, as the rest of a sentence: one that is best in every question, where there is one. other: as
    a word, where these are not all questions."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    groups: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for row in winners:
        groups.setdefault(option(row, questions), set()).add(option(row, options))
    every, alike = " and ".join(questions), set.intersection(*groups.values())
    each = f"value of {every}" if every.endswith("s") else every
    if not alike:
        said = _each(groups, options, questions, rows)
        return f"{APART} for each {each} ({said}): points are compared where {every} is the same."
    named, same = called(alike, options, questions, rows)
    if len(groups) > 1:
        asked = group(rows, questions)
        ran, ended = (
            {
                name: {
                    option(row, options)
                    for row in some
                    if (row["verdict"] in grid.STOPPED) is stopped
                }
                for name, some in asked.items()
            }
            for stopped in (False, True)
        )
        lacks = [name for name, some in ran.items() if not alike <= some]
        if not lacks:
            mine = [row for row in winners if option(row, options) in alike]
            figures = _spread(mine) * all(map(is_seed, questions))
            return f" for every{other} {each}: {named}{figures}{same}."
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
    where = f" where {' '.join(f'{a}={winners[0][a]}' for a in questions)}" * bool(questions)
    return f"{where}: {named} ({facts(winners[0])}){same}."


def facts(row: Row) -> str:
    """What a point came to, as an apposition: its verdict, its answer, how far off it is, its bytes."""
    told = [grid.word(row), *([f"{row['answer']} answer"] if row.get("answer") else [])]
    if missed(row) and row.get("kl_mean") is not None:
        told.append(f"mean KL {row['kl_mean']:.3g} nats")
    if row.get("stored_bytes"):
        inside = f", {held(row):,} of them in memory alone" if held(row) else " on disk"
        told.append(f"{stored(row):,} bytes{inside}")
    return ", ".join(told)


def _spread(rows: list[Row]) -> str:
    """How far off points are over the seeds, where that chose them, and their bytes, in brackets; empty where one stores
    nothing."""
    if not all(row.get("stored_bytes") for row in rows):
        return ""
    far = [float(row["kl_mean"]) for row in rows if missed(row) and row.get("kl_mean") is not None]
    nats = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (min(far), max(far)))) if far else ""
    sizes = [int(stored(row)) for row in rows]
    size = " to ".join(dict.fromkeys(f"{end:,}" for end in (min(sizes), max(sizes))))
    inside = ", part of them in memory alone" if any(map(held, rows)) else " on disk"
    return f" ({f'mean KL {nats} nats, ' * bool(far)}{size} bytes{inside})"


def _where(questions: list[str], values: tuple[str, ...]) -> str:
    return " ".join(f"{q}={v}" for q, v in zip(questions, values))


def _each(
    groups: dict[tuple[str, ...], set[tuple[str, ...]]], options: list[str], questions: list[str], rows: list[Row]
) -> str:  # fmt: skip
    """The best options of each question; of many questions the first ones, and how many more there are."""
    told = [
        f"{called(own, options, questions, rows)[0]} where {_where(questions, name)}"
        for name, own in groups.items()
    ]
    return "; ".join([*told[:FEW], *[f"{len(told) - FEW} more"] * (len(told) > FEW)])


def called(
    alike: set[tuple[str, ...]], options: list[str], questions: list[str], rows: list[Row]
) -> tuple[str, str]:
    """The options of points that tie, and, as the rest of the sentence, those that make no difference: in
    no point, or in none of these."""
    order = [has for row in rows if (has := option(row, options)) in alike]
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
        read = [a for a in free if not unread(a, [r for r in rows if option(r, options) in alike])]
        return named, f", where every value of {' and '.join(read)} ties" if read else ""
    return named, f"; {' and '.join(free)} make{'s' * (len(free) == 1)} no difference"


def unread(axis: str, rows: list[Row]) -> bool:
    """Whether an axis is a key of an option that none of these points has: `prune.ratio` of `prune=none`."""
    return "." in axis and all(row.get(axis.partition(".")[0]) == "none" for row in rows)


def _level(rows: list[Row]) -> bool:
    """Whether none of these points is better than another."""
    return not best(rows) and len({row["verdict"] in grid.STOPPED for row in rows}) == 1
