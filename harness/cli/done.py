"""Which points of a sweep are done, read from their folders."""

import json
from pathlib import Path
from typing import Any


def finished(folder: Path) -> list[Path]:
    """The point folders with a complete record, in order."""
    points = folder.iterdir() if folder.is_dir() else ()
    done = [point for point in points if (point / "result.json").is_file()]
    return sorted(done, key=lambda point: (len(point.name), point.name))


def sealed(point: Path) -> int | None:
    """When a point was sealed; what is done with it later does not change that."""
    seal = point / "record.json"
    return seal.stat().st_mtime_ns if seal.is_file() else None


def ended(point: Path) -> float:
    """When a finished point came to its end, in seconds: what is uploaded later does not change its seal."""
    seal = point / "record.json"
    return (seal if seal.is_file() else point / "result.json").stat().st_ctime


def written(point: Path) -> int | None:
    """When a point came to its end; None for one that has not."""
    result = point / "result.json"
    return result.stat().st_mtime_ns if result.is_file() else None


def failed(folder: Path) -> dict[str, int]:
    """The points that failed, or that nothing seals, and when."""
    wrong = (
        p
        for p in finished(folder)
        if read_key(p / "result.json", "verdict") == "failed" or not (p / "record.json").is_file()
    )
    return {p.name: written(p) or 0 for p in wrong}


def read_key(file: Path, key: str) -> Any:
    """One value of a JSON file; None where it has none. The id of `record.json` is a point's seal, and one
    that was refused before it ran may have none."""
    try:
        return json.loads(file.read_text("utf-8")).get(key)
    except (OSError, ValueError):
        return None
