"""The metrics of a run, in sections. What a fact is to MLflow its own metadata says (`track` in `harness.results`)."""

import json
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from harness.results.run import FACTS
from harness.snapshot import table
from harness.snapshot.result import STEPS, counted, times_faster
from harness.track import snapshot
from harness.track.contents import safe

Figure = tuple[str, float, int]  # key, value, step
SECTIONS = {"metrics": "logits", "noise_floor": "noise", "oracle": "oracle", "mutation": "mutation", "size": "size",
            "time_s": "time", "audit": "audit", "diff": "diff", "detection": "faults", "chat": "chat"}  # fmt: skip
ALIKE = ("top1_agreement", "top5_overlap", "first_divergence")  # of the noise floor, in all runs
TURNS = ("cached_s", "naive_s", "sent_tokens", "total_tokens", "stored_bytes", "recalled")
LEAST = 1e-6  # what MLflow's axes tell from 0
MOST = 120  # figures of one table
BATCH = 1000  # metrics per request, the server's limit


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def metrics(result: dict[str, Any]) -> Iterator[Figure]:
    """Every finite number of the result that is a metric; steps count from 1."""
    size = snapshot.sizes(result)
    for block, section in SECTIONS.items():
        for key, value in (size if block == "size" else result.get(block) or {}).items():
            fact = FACTS.get(f"{block}.{key}")  # None: a metric of the user's own, or of a task
            blank = block in ("size", "mutation") and not value
            if not number(value) or blank or (fact and fact.track != "metric"):
                continue
            if (block == "mutation" and fact is None) or (block == "noise_floor" and key in ALIKE):
                continue
            name = f"{key}_from_1" if key in STEPS else key
            yield f"{section}/{name}", float(counted(key, value)), 0
    if size.get("tokens") and size.get("kept_tokens"):
        yield "size/kept_share", size["kept_tokens"] / size["tokens"], 0
    if faster := times_faster(result):
        yield "speed/times_faster", faster, 0
    for name, curve in list((result.get("curves") or {}).items())[:2]:
        noise = "noise_" if name.startswith("noise") else ""
        for key, values in curve.items():
            if noise and all(value is None or value < LEAST for value in values):
                continue
            for step, value in enumerate(values, 1):
                if number(value):
                    yield f"by_step/{noise}{key}", float(value), step


def turns(folder: Path) -> Iterator[Figure]:
    """What each turn of the chat in `folder` took; nothing of another task."""
    try:
        rows = json.loads((folder / "chat.json").read_text("utf-8"))
    except (OSError, ValueError):
        return
    for step, row in enumerate(rows, 1):
        for key in TURNS:
            if isinstance(value := row.get(key), int | float):
                yield f"by_turn/{key}", float(value), step


def tabled(folder: Path, result: dict[str, Any]) -> Iterator[Figure]:
    """`column/row` for the figures of a bench, the leftmost column first; a row is called by what tells it apart."""
    by, rows = table.apart(result), table.rows(folder, result)
    figures = [
        (safe(f"{column}/{' '.join(str(row.get(key)) for key in by)}"), float(row[column]), 0)
        for column in table.columns(result) if by and column not in by
        for row in rows if number(row.get(column))
    ]  # fmt: skip
    yield from figures[:MOST]


def marked(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """Of the runs below one those figures that it has itself: of the full cache and of the best cell, by `as`."""
    for row in (row for row in rows if row.get("as")):
        for key, value in row["metrics"].items():
            if number(value):
                yield f"{row['as']}/{key.rpartition('/')[2]}", float(value), 0


def every(folder: Path, result: dict[str, Any], rows: list[dict[str, Any]]) -> list[Figure]:
    """All metrics of the run in `folder`. rows: of the runs below it."""
    return [*marked(rows), *metrics(result), *turns(folder), *tabled(folder, result)]


def log(
    client: Any, run_id: str, values: Iterable[Figure], when: int, params: dict[str, str]
) -> None:
    """Log metrics, of one time, and parameters."""
    from mlflow.entities import Metric, Param

    known = [Metric(key, value, when, step) for key, value, step in values]
    chosen = [Param(key, value) for key, value in params.items()]
    for start in range(0, max(len(known), 1), BATCH):
        client.log_batch(run_id, known[start : start + BATCH], chosen if not start else [])
