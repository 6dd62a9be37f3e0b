"""Which entries of a directory are a snapshot's, and which are somebody else's, so never deleted."""

import json
from pathlib import Path
from typing import Any

from harness.save import files
from harness.snapshot import manifest as manifests

SIGNATURE = "manifest.json.sig"
TURN = "turn-"  # and a number: a chat keeps a snapshot per turn, side by side


def names(manifest: Any) -> set[str]:
    """The files that a manifest (plain or encrypted, not yet validated) names, itself included."""
    named = {manifests.NAME, SIGNATURE}
    if not isinstance(manifest, dict):
        return named
    for table, stem in (("files", ""), ("tokenizer_files", "tokenizer/")):
        rows = manifest.get(table)
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and isinstance(row.get("file"), str):
                named.add(stem + row["file"])
    return named


def foreign(folder: Path, begun: bool = False) -> list[str]:
    """Entries of the snapshot directory `folder` that its manifest does not name, sorted. Where that
    is none, it is everything else; or nothing, if `folder` may be one that a writer only began.
    Raises OSError or files.Unreadable where the disk does not say."""
    while True:
        with files.Folder(folder) as opened:
            try:
                manifest = _manifest(opened)
                if begun and manifest is None:
                    return []
                strangers = files.listing(opened) - names(manifest) - {"tokenizer"}
            except OSError:
                if not opened.replaced():
                    raise
                continue  # what another writer has replaced is being removed
            if not strangers or not opened.replaced():  # else another writer was at it
                return sorted(strangers)


def turns(folder: Path) -> list[Path]:
    """The snapshots of a chat that is kept in `folder`, in the order of the turns."""
    whole = (p.parent for p in folder.glob(f"{TURN}*/{manifests.NAME}"))
    return sorted((p for p in whole if p.name[len(TURN) :].isdecimal()), key=number)


def number(turn: Path) -> int:
    return int(turn.name[len(TURN) :])


def _manifest(folder: files.Folder) -> Any:
    try:
        with files.opened(folder, manifests.NAME) as file:
            return json.loads(file.read(manifests.MAX_BYTES))
    except files.Unreadable:
        raise
    except (ValueError, RecursionError):
        return None
