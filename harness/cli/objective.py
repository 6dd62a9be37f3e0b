"""The figures of a finished point that a sweeper which searches is told: `report.objectives`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NOTHING = float("nan")  # of a point that failed, or has no such figure


def objectives(folder: Path, names: Sequence[str]) -> tuple[float, ...]:
    """One number per name: `size.kv_bytes` is a figure of `result.json`; `evaluate.contains` that
    measure in the last cell of `evaluate.json`, and `evaluate.kv_bytes` a column of its last row."""
    return tuple(_number(folder, name) for name in names)


def _number(folder: Path, name: str) -> float:
    first, _, rest = name.partition(".")
    table = folder / f"{first}.json"
    try:
        if first != "result" and rest and table.is_file():
            return float(_of_rows(json.loads(table.read_text("utf-8")), rest))
        node = json.loads((folder / "result.json").read_text("utf-8"))
        for key in name.split("."):
            node = node[key]
        return float(node)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return NOTHING


def _of_rows(rows: list[dict[str, Any]], name: str) -> Any:
    measured = [row for row in rows if row.get("measure") == name]
    return measured[-1]["value"] if measured else rows[-1][name]
