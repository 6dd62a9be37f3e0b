"""Where the weights of a record lie on the machine of who audits it."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.config import Config, moved
from harness.errors import InputProblem
from harness.pipeline.finish import shown
from harness.pipeline.origin import chosen
from harness.snapshot import record as records
from harness.task.audit.source import read

OPTION = "path"  # of a model that is a folder
TYPED = ("model=", "model.")


def missing(point: Path) -> str | None:
    """The folder or GGUF file that the record of `point` took its weights from, where it is gone; else None."""
    model = (read(point / records.NAME).get("config") or {}).get("model")
    place = model.get("path") if isinstance(model, dict) and model.get("name") == OPTION else None
    return None if not isinstance(place, str) or moved.there(place) else place


def located(cfg: Config, points: Iterable[Path]) -> None:
    """Raise InputProblem for a record whose weights are not where they were, unless the command says where they are
    now. A record that came to no end may be about that very folder."""
    for point in points:
        ended = "stages" not in read(point / "result.json")
        if ended and not _told(cfg) and (place := missing(point)):
            raise InputProblem(
                f"{shown(point)} was run with the weights at {place}, which are not there. Say where they are on this "
                "machine: model=path model.path=DIR (they are compared by digest)."
            )


def passed_over(cfg: Config, points: Iterable[Path]) -> str:
    """What to say of a place that was typed and is read for none of `points`, whose own weights are where their
    records say; empty where it is read, or where none was typed."""
    if not _told(cfg) or any(map(missing, points)):
        return ""
    return f"model.path={cfg.model.path} is not read: the weights are still where the record says"


def job(cfg: Config, point: Path) -> dict[str, Any]:
    """The words that the second run of `point` finds typed, and where the weights lie now that the record calls by a
    folder that is gone: only those, so that a record is not run with other weights than it names."""
    words = [word for word in sys.argv[1:] if not word.lstrip("+").startswith(TYPED)]
    place = missing(point) if _told(cfg) else None
    return {"typed": words} | ({"moved": [place, str(cfg.model.path)]} if place else {})


def _told(cfg: Config) -> bool:
    return chosen("model") and cfg.model.name == OPTION
