"""The snapshot that a run left, beside the one that it read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.snapshot.record import read
from harness.track import provenance

READING = (
    "resume"  # the task whose `snapshot` is what it read; what it wrote, with `out=`, is its `next`
)
Result = Mapping[str, Any]


def left(result: Result) -> dict[str, Any]:
    """The block (`id`, `path`) of the snapshot that a run left; empty where it left none."""
    own = {} if result.get("task") == READING else result.get("snapshot")
    return dict(result.get("next") or own or {})


def parent(result: Result) -> str | None:
    """The id of the snapshot that a run read, also of one that was refused after that."""
    known = (result.get("known") or {}).get("snapshot_id")
    if result.get("task") == READING:
        return (result.get("snapshot") or {}).get("id") or known
    return result.get("pruned_from") or (known if result.get("task") == "prune" else None)


def sizes(result: Result) -> dict[str, Any]:
    """The sizes of what a run left, beside how many tokens were read before; of one that left nothing those of what it
    read."""
    own, written = result.get("size") or {}, (result.get("next") or {}).get("size")
    return {**written, "read_tokens": own.get("tokens")} if written else own


def called(result: Result) -> str:
    """The folder of its copy on a server: no other than the run's own `snapshot/` is called so, since that is what
    an audit of the copies looks for."""
    return "next" if result.get("next") else "snapshot"


def lies(folder: Path, result: Result) -> Path | None:
    """Where the snapshot lies that the run in `folder` left: in it, or at `out=`; None where it is there no more, or
    another has been written over it."""
    block = left(result)
    inside = folder / "snapshot"
    if (inside / "manifest.json").is_file():
        return inside
    if not block.get("path") or block.get("format") == "memory" or "://" in str(block["path"]):
        return None
    start = provenance.tags(folder, str(result.get("folder", folder))).get("directory", "")
    there = Path(start) / str(block["path"])
    try:
        mine = read(there / "manifest.json").get("id") == block.get("id")
    except (OSError, ValueError):
        return None
    return there if mine else None
