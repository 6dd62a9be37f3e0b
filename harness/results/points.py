"""The points of a sweep as flat rows: the columns of `sweep.csv`, their facts, and which of them were varied."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from harness.config import draws, launched
from harness.config.literal import decoded
from harness.results.fact import Fact
from harness.results.reason import args_of, code_of, of
from harness.results.run import fact_of
from harness.snapshot import objective
from harness.snapshot.objective import ANSWERS, directions
from harness.snapshot.result import (
    COMPARED,
    DONE,
    METRICS,
    SIZES,
    TIMES,
    exit_code,
    outcome,
)
from harness.snapshot.result import counted as step
from harness.snapshot.words import tokens_kept, uneven

TABLE, CELLS, PAGE, RECORD = "sweep.csv", "answers.csv", "sweep.html", "sweep.json"
STOPPED = ("failed", "refused")  # such points have no figures
INPUTS = {"text", "seed", "steps", "model", "prompt", "tokenizer", "sampling", "task", "snapshot", "at"}  # fmt: skip
CELL_AXES = {f"task.{key}" for key in ("prunes", "quantizers", "caches", "budgets")}
TIE = 0.05  # two divergences within 5% tie
FROM_1 = "first_divergence_from_1"
CHOICE = "cell"  # what an evaluation comes to; its figures are columns below it
SAFE, RIGHT, BYTES, KL = FIGURES = ("cell.safe", "cell.contains", "cell.kv_bytes", "cell.kl")
SECONDS = tuple(f"{key}_s" for key in TIMES)

Row = dict[str, Any]

PATHS = {
    **{key: f"metrics.{key}" for key in METRICS},
    "error_ratio": "oracle.ratio",
    "noise_kl_max": "noise_floor.kl_max",
    "mutated": "mutation.mutated",
    "bytes_copied_per_token": "mutation.bytes_copied_per_token",
    **{key: f"size.{key}" for key in SIZES},
    **{f"{key}_s": f"time_s.{key}" for key in TIMES},
}  # column -> where `result.json` has it
OTHERS = {
    draws.SHARE: Fact("same draws", format=".1%", meaning="share of drawn tokens that are the uninterrupted run's"),
    draws.FIRST: Fact("first other draw", meaning="first step, from 1, that draws another token"),
    FROM_1: Fact("first other token", meaning="first step, from 1, with another most likely token"),
    "kept_mean": Fact("tokens kept, mean", format=".1f", meaning="mean over layers and heads"),
    "restore": Fact("restore", meaning="verdict on the round trip alone: restored against saved"),
    "answer": Fact("answer", meaning="whether the expected answer was given"),
    "evaluate.contains": Fact("right answers", format=".1%", meaning="share of prompts answered right"),
    "evaluate.kv_bytes": Fact("K/V", unit="bytes", format=",.0f"),
    "evaluate.kl": Fact("KL", unit="nats", meaning="mean divergence from the full cache's answers"),
    CHOICE: Fact("cell", meaning="smallest safe cell of the evaluation, else the nearest"),
    SAFE: Fact("safe", meaning="not measurably worse than the full cache"),
    RIGHT: Fact("right", format=".1%", meaning="share of prompts that this cell answers right"),
    BYTES: Fact("K/V", unit="bytes", format=",.0f"),
    KL: Fact("KL", unit="nats", meaning="mean divergence from the full cache's answers"),
}  # fmt: skip
MEASURED = {*PATHS, *OTHERS, *ANSWERS, "pruned", "point", "verdict", "outcome", "exit_code", "reason", "snapshot_id",
            "mlflow_run_id", "folder"}  # fmt: skip


def column_fact(key: str) -> Fact:
    """The Fact of a column; of a metric of somebody's own too."""
    if key in OTHERS:
        return OTHERS[key]
    return fact_of(PATHS.get(key, key if "." in key else f"metrics.{key}"))


# --- sweep.csv


def rows(points: Sequence[Path]) -> list[Row]:
    """One flat row per finished point folder of one sweep, the same columns in each."""
    names = list(directions(points[0].parent)) if points else []
    names = names or objective.answered(points)
    flat = [{**row_of(p), **objective.figures(p, names)} for p in points]
    if any("kept_mean" in row for row in flat):
        for row in flat:
            row.setdefault("kept_mean", row.get("kept_tokens"))
    if any(row.get("restore") for row in flat):
        for row in flat:
            row["restore"] = row.get("restore") or _plain_restore(row)
    columns = list(dict.fromkeys(key for row in flat for key in row))
    return [{key: row.get(key) for key in columns} for row in flat]


def row_of(folder: Path) -> Row:
    """The columns of one point: the values of its `result.json` as they are."""
    result = json.loads((folder / "result.json").read_text("utf-8"))
    options, size = result.get("options") or {}, result.get("size") or {}
    metrics, text = result.get("metrics") or {}, result.get("text") or {}
    typed = dict(decoded(o).lstrip("+~").partition("=")[::2] for o in launched.typed(folder) or [])
    first = metrics.get("first_divergence")
    return {
        "point": folder.name,
        "verdict": result["verdict"],
        "outcome": outcome(result) or DONE,
        "exit_code": exit_code(result),
        "reason": result["reason"],
        **_restore(result),
        **options,
        **{k: v for k, v in typed.items() if k not in options},
        **{k: metrics.get(k) for k in METRICS},
        **{k: v for k, v in metrics.items() if k not in METRICS},
        FROM_1: None if first is None else step("first_divergence", first),
        **draws.figures(result),
        **({"answer": "right" if text["restored_right"] else "wrong"} if "expected" in text else {}),
        "error_ratio": (result.get("oracle") or {}).get("ratio"),
        "noise_kl_max": (result.get("noise_floor") or {}).get("kl_max"),
        "mutated": (result.get("mutation") or {}).get("mutated"),
        "bytes_copied_per_token": (result.get("mutation") or {}).get("bytes_copied_per_token"),
        **dict.fromkeys(SIZES),
        **{k: size[k] for k in SIZES if k in size and any(size.values())},  # all zero: nothing stored
        **{k: (result.get("time_s") or {}).get(k.removesuffix("_s")) for k in SECONDS},
        "snapshot_id": (result.get("snapshot") or {}).get("id"),
        "mlflow_run_id": (result.get("mlflow") or {}).get("run_id"),
        "folder": result.get("folder", str(folder)),
    }  # fmt: skip


def _restore(result: Mapping[str, Any]) -> Row:
    """The verdict on the round trip alone, and what layers or heads that keep other numbers of tokens keep."""
    block, size = result.get("itself") or {}, result.get("size") or {}
    found: Row = {}
    if block.get("against") == "saved" and block.get("verdict"):
        found["restore"] = str(block["verdict"])
    kept, mean = tokens_kept(result)
    if result.get("pruned") and kept and kept == size.get("tokens"):
        found["pruned"] = True
    return found | ({"kept_mean": mean} if uneven(kept, mean) else {})


def _plain_restore(row: Row) -> str | None:
    """The restore of a point that neither pruning nor codes changed: what was judged."""
    if quantized(row) or row.get("kept_tokens") != row.get("tokens") or row.get("pruned"):
        return None
    return str(row["verdict"]) if row["verdict"] in COMPARED else None


def as_csv(lines: Sequence[Row]) -> str:
    """One line for each; a column for each key that one of them has."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(dict.fromkeys(key for line in lines for key in line)))
    writer.writeheader()
    writer.writerows(lines)
    return table.getvalue()


def read_csv(folder: Path, table: str = TABLE) -> list[dict[str, str]]:
    """The rows of a table of the sweep in `folder`, as text. Raises OSError."""
    with (folder / table).open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def as_text(points: Sequence[Row]) -> list[dict[str, str]]:
    """`rows` as they read back from a CSV file."""
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in points]


# --- what varied


def varied(points: Sequence[Row], ways: Iterable[str] = ()) -> list[str]:
    """The columns that were swept: options and overrides with more than one value. ways: objectives."""
    if not points:
        return []
    measured = {*MEASURED, *ways}
    numbers = {
        k
        for r in points
        for k, v in r.items()
        if isinstance(v, int | float) and not isinstance(v, bool)
    }  # metrics of somebody's own

    def values(key: str) -> set[str]:
        # a point that could not be composed knows only what was typed for it
        known = (r[key] for r in points if r.get("verdict") != "failed" or r[key] not in (None, ""))
        return set(map(str, known))

    return [k for k in points[0] if k not in measured | numbers and len(values(k)) > 1]


def is_seed(axis: str) -> bool:
    return axis.rpartition(".")[2] == "seed"


def asks(axis: str) -> bool:
    """Whether another value of the option is another question, not another answer to the same one."""
    return is_seed(axis) or (axis.partition(".")[0] in INPUTS and axis not in CELL_AXES)


def group(points: Iterable[Row], axes: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    """The points by what they have on `axes`."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in points:
        groups.setdefault(tuple(str(row.get(axis)) for axis in axes), []).append(row)
    return groups


def word(row: Row) -> str:
    """What a point came to, in the word of its task."""
    return str(row.get("outcome") or row["verdict"])


def distance(row: Row) -> float:
    """How far a point's logits are from the full cache's."""
    known = (row.get(key) for key in ("kl_mean", "max_abs_diff"))
    return next((float(value) for value in known if value is not None), inf)


def as_near(one: float, least: float) -> bool:
    return one <= max(least, least / (1 - TIE))


def why(row: Row) -> dict[str, Any]:
    """The reason of a point that came to no end, without the paths of its own folder."""
    reason, own = of(row["reason"]), str(row.get("folder") or "")
    args = {k: v.replace(f"{own}/", ".../") if own and isinstance(v, str) else v for k, v in args_of(reason).items()}  # fmt: skip
    return {"code": code_of(reason), "args": args}


def quantized(row: Row) -> bool:
    return str(row.get("quantize") or "none") != "none"


def full_cache(row: Row) -> bool:
    """Whether a point holds the whole cache, as it was computed."""
    kept_all = row.get("kept_tokens") is not None and row["kept_tokens"] == row.get("tokens")
    exact = str(row.get("prune") or "none") == "none" or (kept_all and not row.get("pruned"))
    return exact and not quantized(row)
