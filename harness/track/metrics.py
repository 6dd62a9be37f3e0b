"""The metrics of a run, in named sections."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.snapshot import table
from harness.snapshot.result import STEPS, times_faster
from harness.snapshot.result import counted as from_one
from harness.track import snapshot

SECTIONS = {"metrics": "logits", "noise_floor": "noise", "time_s": "time", "size": "size",
            "oracle": "oracle", "audit": "audit", "diff": "diff", "detection": "faults",
            "chat": "chat"}  # fmt: skip
FLAT = {"noise_floor": ("top1_agreement", "top5_overlap", "first_divergence")}  # alike in all runs
TURNS = (
    "cached_s",
    "naive_s",
    "sent_tokens",
    "total_tokens",
    "stored_bytes",
    "recalled",
)  # of a chat
KEPT = "size/kept_share"
LEAST = 1e-6  # what MLflow's axes tell from 0
MOST = 120  # metrics of one table: more would bury those of other runs


def metrics(result: dict[str, Any], once: bool = False) -> Iterator[tuple[str, float, int]]:
    """`section/name`, value and step of every finite number in the result that can differ by more
    than yes and no: those are tags. What there is for every step has a section of its own, whose charts
    come before those of one bar. Steps are counted from 1. Noise whose chart would be labelled 0 throughout has its
    largest step alone, in `noise/`. once: as older versions, which drew it."""
    for block, section in SECTIONS.items():
        figures = snapshot.sizes(result) if block == "size" else result.get(block) or {}
        for key, value in figures.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            blank = block == "size" and not value  # of a task that stores nothing
            if number and value == value and key not in FLAT.get(block, ()) and not blank:
                name = f"{key}_from_1" if key in STEPS else key
                yield f"{section}/{name}", float(from_one(key, value)), 0
    yield from _kept(snapshot.sizes(result))
    if faster := times_faster(result):
        yield "speed/times_faster", faster, 0
    if copied := (result.get("mutation") or {}).get("bytes_copied_per_token"):
        yield "mutation/bytes_copied_per_token", float(copied), 0
    for name, curve in list((result.get("curves") or {}).items())[:2]:
        whose = "noise_" if name.startswith("noise") else ""
        for key, values in curve.items():
            if whose and not once and all(value is None or value < LEAST for value in values):
                continue
            for step, value in enumerate(values, 1):
                if isinstance(value, int | float):
                    yield f"by_step/{whose}{key}", float(value), step


def _kept(size: dict[str, Any]) -> Iterator[tuple[str, float, int]]:
    """The share of the tokens that are kept, 1 where nothing was pruned: what a search takes a range of and a chart an
    axis, as no parameter can be."""
    if size.get("tokens") and size.get("kept_tokens"):
        yield KEPT, size["kept_tokens"] / size["tokens"], 0


def turns(folder: Path) -> Iterator[tuple[str, float, int]]:
    """What each turn of the chat in `folder` took and held, the first turn as step 1; `recalled` is 1 where the expected
    answer came, 0 where not. Nothing of another task."""
    try:
        rows = json.loads((folder / "chat.json").read_text("utf-8"))
    except (OSError, ValueError):
        return
    for step, row in enumerate(rows, 1):
        for key in TURNS:
            if isinstance(value := row.get(key), int | float):
                yield f"by_turn/{key}", float(value), step


def tabled(folder: Path, result: dict[str, Any]) -> Iterator[tuple[str, float, int]]:
    """`column/row`, value and step of the first `MOST` figures of a table, the leftmost column first: runs are compared
    row by row. A row is called by what tells it apart."""
    by, rows = table.apart(result), table.rows(folder, result)
    figures = [
        (safe(f"{column}/{' '.join(str(row.get(key)) for key in by)}"), float(row[column]), 0)
        for column in table.columns(result) if by and column not in by
        for row in rows if _number(row.get(column))
    ]  # fmt: skip
    yield from figures[:MOST]


def safe(key: str) -> str:
    """A key as MLflow takes it."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in key)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
