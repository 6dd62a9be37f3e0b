"""What a chat's description says of it: its turns, and what its last snapshot needs beside it."""

import json
from pathlib import Path
from typing import Any

from harness.snapshot.record import read
from harness.track import contents, snapshot

TASK = "chat"
MOST, LONG = 20, 80  # turns that are listed, and characters of what was said in one


def listed(folder: Path, result: dict[str, Any]) -> list[str]:
    """The turns in markdown, the first `MOST`, and the note on the snapshot; nothing of another task. Of one that
    is encrypted no words."""
    if result.get("task") != TASK:
        return []
    words = [] if contents.hidden(contents.config(folder)) else _turns(folder)
    told = [*words, *_needs(folder, result)]
    return [*told, ""] if told else []


def _turns(folder: Path) -> list[str]:
    try:
        rows = json.loads((folder / "chat.json").read_text("utf-8"))
        lines = [
            f"{row['turn']}. {_code(row['ask'])} {_code(row['answer'])}{_word(row)}" for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    more = len(lines) - MOST
    return [*lines[:MOST], *[f"\n{more} more turns."] * (more > 0), ""]


def _needs(folder: Path, result: dict[str, Any]) -> list[str]:
    """That the copy of the last turn's snapshot is no whole: what came before lies beside it in the run's folder."""
    place = snapshot.lies(folder, result) or Path(
        str((result.get("snapshot") or {}).get("path") or "")
    )
    try:
        rows = read(place / "manifest.json").get("lineage") or []
        beside = [str(row["place"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not beside:
        return []
    own = place.resolve().is_relative_to(folder.resolve())
    said = Path(str((result.get("snapshot") or {}).get("path")))  # as `out=` was typed
    where = "the run's own folder" if own else f"`{said.parent}`"
    return [
        f"The snapshot among its artifacts is that of the last turn, and needs `{', '.join(beside)}` beside it: they lie "
        f"in {where}."
    ]


def _word(row: dict[str, Any]) -> str:
    if row.get("recalled") is None:
        return ""
    return " (right)" if row["recalled"] else f" (wrong, {_code(row['expect'])} is expected)"


def _code(text: Any) -> str:
    said = " ".join(str(text).split()).replace("`", "'")
    return f"`{said if len(said) <= LONG else said[:LONG] + '...'}`" if said else "nothing"
