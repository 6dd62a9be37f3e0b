"""Which point of a sweep to choose. Only points that were asked the same can be compared: what a text, a
model or a seed costs says nothing about the options beside it."""

import math
from typing import Any

from harness.report import verdicts as grid

ASKED = (
    "text",
    "seed",
    "steps",
    "model",
    "prompt",
    "tokenizer",
    "sampling",
    "task",
    "snapshot",
    "at",
)

Row = dict[str, Any]


def asks(axis: str) -> bool:
    """Whether another value of the option is another question, not another answer to the same one."""
    return axis.partition(".")[0] in ASKED


def best(found: list[Row]) -> Row | None:
    """The point to choose among those that were asked the same; None where all are alike in all that
    counts. Meeting what is required comes first, then the right answer, a better verdict, fewer bytes,
    less time."""

    def rank(row: Row) -> tuple[Any, ...]:
        verdict = grid.rank(row["verdict"])
        costs = (row.get("stored_bytes") or math.inf, row.get("per_token_s") or math.inf)
        return (int(row["exit_code"]) != 0, row.get("answer") == "wrong", verdict, *costs)

    measured = [row for row in found if row["verdict"] not in grid.STOPPED]
    if len({rank(row)[:-1] for row in measured}) < 2:
        return None
    return min(measured, key=rank)


def chosen(found: list[Row], axes: list[str]) -> list[Row]:
    """The best point of each question, where there is one."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(tuple(str(row[a]) for a in axes if asks(a)), []).append(row)
    return [row for row in map(best, groups.values()) if row is not None]


def told(winners: list[Row], axes: list[str]) -> str:
    """What to choose, in one sentence: the point, or what is best whatever was asked; empty for nothing."""
    if not winners:
        return ""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    if not questions:
        row = winners[0]
        facts = [row["verdict"], *([f"{row['answer']} answer"] if row.get("answer") else [])]
        if row.get("stored_bytes"):
            facts.append(f"{row['stored_bytes']:,} bytes")
        return f"The best: {_named(row, options)} ({', '.join(facts)})."
    every, alike = " and ".join(questions), {_named(row, options) for row in winners}
    if len(alike) == 1 and len(winners) > 1:
        return f"The best for every {every}: {alike.pop()}."
    return f"The best is marked for each {every}: points are compared where {every} is the same."


def _named(row: Row, options: list[str]) -> str:
    return " ".join(f"{a}={row[a]}" for a in options)
