"""`track=none`: only the run directory."""

from pathlib import Path
from typing import Any


class None_:
    """Keeps nothing."""

    def __init__(self, settings: Any, runs_dir: Path):
        pass

    def log(
        self,
        folder: Path,
        result: dict[str, Any],
        name: str,
        again: bool = False,
        watch: Any = None,
    ) -> None:
        return None

    def retry(self) -> None:
        return None

    def summary(self, *parts: Any) -> None:
        return None
