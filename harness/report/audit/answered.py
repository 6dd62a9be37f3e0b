"""What an evaluation said, as an audit counts and shows it: its answers, and the figures of its cells."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.report.names import plain
from harness.snapshot.result import CELL, ROWS

SAID = "answers.jsonl"
KEY = "answered"  # what was read, beside a `result.json`
ANSWERS = "answers"
COSTS = ("kv_bytes", "kept_tokens")
MEASURED = ("every answer", "right answers, likelihood, divergence and bytes of every cell")


def lists(place: Callable[[str], Path]) -> dict[str, list[Any]]:
    """The tokens of each answer, and each figure of every cell; empty of what is no evaluation. place: where the file
    of a name lies."""
    try:
        said, table = (place(name).read_text("utf-8") for name in (SAID, ROWS))
        answers = [json.loads(line) for line in said.splitlines()]
        made = {ANSWERS: [tuple(answer["ids"]) for answer in answers]}
        cells: dict[Any, Any] = {}
        for row in json.loads(table):
            made.setdefault(f"evaluate.{row['measure']}", []).append(row["value"])
            cells[tuple(row[key] for key in CELL)] = row
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return made | {f"evaluate.{key}": [row[key] for row in cells.values()] for key in COSTS}


def label(what: str) -> str:
    """The name of such a list in a person's words."""
    if what == ANSWERS:
        return "answers, by their tokens"
    named = plain(what)
    return f"{plain(what.rpartition('.')[2]) if named.startswith('evaluate.') else named}, of each cell"
