"""`track=none`: only the run directory."""

from pathlib import Path
from typing import Any


class Untracked:
    """Keeps nothing."""

    def __init__(self, settings: Any, runs_dir: Path):
        pass

    def begin(self, result: dict[str, Any], cfg: Any) -> None:
        return None

    def child(self, name: str, tags: dict[str, str], metrics: dict[str, float]) -> None:
        return None

    def end(self, result: dict[str, Any], folder: Path, page: Path) -> None:
        return None


TRACKER = Untracked
