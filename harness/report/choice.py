"""Which point of a sweep to choose. Only points that were asked the same can be compared: what a text, a
model or a seed costs says nothing about the options beside it."""

import math
from collections.abc import Iterable
from typing import Any

from harness.report import verdicts as grid
from harness.snapshot.result import METRICS, TIMES

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

SIZES = ("tokens", "kept_tokens", "kv_bytes", "stored_bytes")
SECONDS = tuple(f"{k}_s" for k in TIMES)
MEASURED = {"point", "verdict", "outcome", "exit_code", "reason", "answer", "error_ratio", "noise_kl_max",
            "mutated", "bytes_copied_per_token", "snapshot_id", "mlflow_run_id", "folder",
            *METRICS, *SIZES, *SECONDS}  # fmt: skip

Row = dict[str, Any]


def varied(found: list[Row], ways: Iterable[str] = ()) -> list[str]:
    """The columns that were swept: options or overrides with more than one value. ways: objectives."""
    measured = {*MEASURED, *ways}
    return [k for k in found[0] if k not in measured and len({str(r[k]) for r in found}) > 1]


def asks(axis: str) -> bool:
    """Whether another value of the option is another question, not another answer to the same one."""
    return axis.partition(".")[0] in ASKED


def best(found: list[Row]) -> Row | None:
    """The point to choose among those that were asked the same; None where all are alike in all that
    counts. Meeting what is required comes first, then the right answer, a better verdict, fewer bytes,
    less time. What misses all of that is told apart by how far off it is before its bytes: the mean KL
    divergence, then the first step with another token."""

    def rank(row: Row) -> tuple[Any, ...]:
        verdict, missed = grid.rank(row["verdict"]), int(row["exit_code"]) != 0
        costs = (row.get("stored_bytes") or math.inf, row.get("per_token_s") or math.inf)
        off = _off(row) if missed or _other(row) else (0.0, 0.0)
        return (missed, row.get("answer") == "wrong", verdict, *off, *costs)

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


def _other(row: Row) -> bool:
    """Whether its tokens are others, and no right answer makes up for that."""
    return row["verdict"] == "diverged" and row.get("answer") != "right"


def _off(row: Row) -> tuple[float, float]:
    """How far a point is from the uninterrupted run, the nearest first."""
    kl, first = row.get("kl_mean"), row.get("first_divergence")
    return (math.inf if kl is None else kl, -math.inf if first is None else -first)


def short_of(found: list[Row]) -> str:
    """What no point of a sweep reaches, in one sentence; empty where one does."""
    if all(int(row["exit_code"]) for row in found):
        return f"None of {len(found)} is as required."
    if all(_other(row) or row["verdict"] in grid.STOPPED for row in found):
        return f"None of {len(found)} keeps the tokens."
    return ""


def told(winners: list[Row], axes: list[str], found: list[Row]) -> str:
    """What to choose, in a sentence: the point, or what is best whatever was asked; empty for nothing. Where
    no point of all that were `found` is good enough, that comes first, and the nearest."""
    if not winners:
        return ""
    short = short_of(found)
    if short:
        return f"{short} The nearest{_which(winners, axes)}"
    return f"The best{_which(winners, axes)}"


def _which(winners: list[Row], axes: list[str]) -> str:
    """Which point, as the rest of a sentence."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    if not questions:
        row = winners[0]
        facts = [grid.word(row), *([f"{row['answer']} answer"] if row.get("answer") else [])]
        if (_other(row) or int(row["exit_code"])) and row.get("kl_mean") is not None:
            facts.append(f"mean KL {row['kl_mean']:.3g}")
        if row.get("stored_bytes"):
            facts.append(f"{row['stored_bytes']:,} bytes")
        return f": {_named(row, options)} ({', '.join(facts)})."
    every, alike = " and ".join(questions), {_named(row, options) for row in winners}
    if len(alike) == 1 and len(winners) > 1:
        return f" for every {every}: {alike.pop()}."
    return f" is marked for each {every}: points are compared where {every} is the same."


def _named(row: Row, options: list[str]) -> str:
    return " ".join(f"{a}={row[a]}" for a in options)
