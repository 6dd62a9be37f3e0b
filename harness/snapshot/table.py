"""The table of a task that measures many things and judges none, as `result.json` speaks of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import foreign

Row = dict[str, Any]


def block(name: str, columns: Sequence[str], by: Sequence[str], word: str = "") -> Row:
    """What `result.json` says of a table that lies beside it as NAME.json. by: the columns that tell its rows apart.
    word: what it came to, in a few words."""
    told = {"file": f"{name}.json", "columns": [*columns], "by": [*by]}
    return {**told, "word": word} if word else told


def word(result: Row) -> str:
    """What a table came to, in a few words; empty where there is none."""
    return str(_block(result).get("word") or "")


def columns(result: Row) -> list[str]:
    """What a description shows of each row; none of a run without a table."""
    return list(_block(result).get("columns") or ())


def apart(result: Row) -> list[str]:
    """The columns that tell its rows apart."""
    return list(_block(result).get("by") or ())


def rows(folder: Path, result: Row) -> list[Row]:
    """The rows of the table that the run in `folder` left; none where there is no such file."""
    name = str(_block(result).get("file") or "")
    if not name or Path(name).name != name:  # it lies in the folder
        return []
    try:
        told = foreign.read_json(folder / name)
    except (OSError, ValueError):
        return []
    return [row for row in told if isinstance(row, dict)] if isinstance(told, list) else []


def _block(result: Row) -> Row:
    told = result.get("table")
    return told if isinstance(told, dict) else {}
