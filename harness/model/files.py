"""Which file of a model cannot be read: the libraries that read them do not say."""

import json
from pathlib import Path
from typing import Any

from harness.folder import POINTER

GENERATION = "generation_config.json"


def broken(folder: Path) -> str | None:
    """The first file in `folder` that the library stumbles over, and what is wrong with it: weights that are cut short
    or are none, a generation_config.json that holds something else; None where there is no such file. Of weights only
    headers are read."""
    for pattern in ("*.safetensors.index.json", "*.safetensors", "pytorch_model*.bin"):
        for file in sorted(folder.glob(pattern)):
            if why := _unreadable(file):
                return f"{file.name} ({file.stat().st_size:,} bytes) {why}"
    file = folder / GENERATION
    if file.is_file() and not isinstance(_json(file), dict | None):
        return f"{GENERATION} holds no object, {{...}}. Correct it, or take it away."
    return None


def _json(file: Path) -> Any:
    """What is in `file`; None where it is no JSON, which the library passes over."""
    try:
        return json.loads(file.read_bytes())
    except ValueError:
        return None


def _unreadable(file: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    try:
        with file.open("rb") as opened:
            start = opened.read(len(POINTER))
        if start == POINTER:
            return (
                "is a pointer of Git LFS in place of the weights. Fetch them with `git lfs pull`."
            )
        if file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix == ".safetensors":
            with safe_open(file, "pt"):
                pass
    except (SafetensorError, ValueError) as problem:
        said = str(problem).partition("\n")[0].removeprefix("Error while deserializing header: ")
        said = said.partition(". ")[0].rstrip(".") or "it is empty"
        return f"is cut short or damaged: {said[:100]}. Copy it again from where it is whole."
    return None
