"""The snapshot that a run left, beside the one that it read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.snapshot.record import read

READING = "resume"  # its `snapshot` is what it read; what it wrote, with `out=`, is its `next`
Result = Mapping[str, Any]


def left(result: Result) -> dict[str, Any]:
    """The block (`id`, `path`) of the snapshot that a run left; empty where it left none."""
    block = {} if result.get("task") == READING else result.get("snapshot")
    return dict(result.get("next") or block or {})


def parent(result: Result) -> str | None:
    """The id of the snapshot that a run read, also of one that was refused after that."""
    known = (result.get("known") or {}).get("snapshot_id")
    if result.get("task") == READING:
        return (result.get("snapshot") or {}).get("id") or known
    return result.get("pruned_from") or (known if result.get("task") == "prune" else None)


def sizes(result: Result) -> dict[str, Any]:
    """The sizes of what a run left, with the tokens that it read; of one that left nothing those of what it read."""
    size, written = result.get("size") or {}, (result.get("next") or {}).get("size")
    return {**written, "read_tokens": size.get("tokens")} if written else size


def called(result: Result) -> str:
    """The folder of its copy among the artifacts."""
    return "next" if result.get("next") else "snapshot"


def lies(folder: Path, result: Result) -> Path | None:
    """Where the snapshot lies that the run in `folder` left; None where it is gone, or written over."""
    block, inside = left(result), folder / "snapshot"
    if (inside / "manifest.json").is_file():
        return inside
    if not block.get("path") or block.get("format") == "memory" or "://" in str(block["path"]):
        return None
    shown, whole = str(result.get("folder", folder)), str(folder.absolute())
    start = whole.removesuffix(f"/{shown}") if whole.endswith(f"/{shown}") else ""
    outside = Path(start) / str(block["path"])
    try:
        same = read(outside / "manifest.json").get("id") == block.get("id")
    except (OSError, ValueError):
        return None
    return outside if same else None
