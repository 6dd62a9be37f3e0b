"""What a sweep varied: its axes, which of them ask another question, and its points by them."""

from collections.abc import Iterable
from typing import Any

from harness.config.draws import FIRST, SHARE
from harness.snapshot.objective import ANSWERS
from harness.snapshot.result import METRICS, SIZES, TIMES

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
CELLS = tuple(f"task.{key}" for key in ("prunes", "quantizers", "caches", "budgets"))  # of evaluate
SECONDS = tuple(f"{k}_s" for k in TIMES)
FROM_1 = "first_divergence_from_1"  # the column of it, called as in MLflow
CHOICE = "cell"  # that an evaluation comes to, and in columns below it what it has
FIGURES = ("cell.safe", "cell.contains", "cell.kv_bytes", "cell.kl")
MEASURED = {FROM_1, SHARE, FIRST, CHOICE, *FIGURES, "restore", "pruned", "kept_mean", "point", "verdict", "outcome", "exit_code", "reason", "answer", "error_ratio", "noise_kl_max",
            "mutated", "bytes_copied_per_token", "snapshot_id", "mlflow_run_id", "folder",
            *METRICS, *SIZES, *SECONDS}  # fmt: skip

Row = dict[str, Any]


def varied(rows: list[Row], ways: Iterable[str] = ()) -> list[str]:
    """The columns that were swept: options or overrides with more than one value. ways: objectives."""
    measured = {*MEASURED, *ANSWERS, *ways}
    return [k for k in rows[0] if k not in measured and len(_values(rows, k)) > 1]


def _values(rows: list[Row], key: str) -> set[str]:
    """What the points have there. One that could not be composed knows what was typed for it, and of no other option."""
    there = (r[key] for r in rows if r.get("verdict") != "failed" or r[key] not in (None, ""))
    return set(map(str, there))


def asks(axis: str) -> bool:
    """Whether another value of the option is another question, not another answer to the same one."""
    return is_seed(axis) or (axis.partition(".")[0] in ASKED and axis not in CELLS)


def is_seed(axis: str) -> bool:
    """Whether an option draws something else and is no amount: nothing leads from one value to the next, and none is
    to be chosen."""
    return axis.rpartition(".")[2] == "seed"


def group(rows: list[Row], axes: list[str]) -> dict[tuple[str, ...], list[Row]]:
    """The points by what they have on `axes`."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[axis]) for axis in axes), []).append(row)
    return groups
