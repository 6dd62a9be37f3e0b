"""Folders and files that a job is to read: whether they are there is told before anything heavy is imported."""

from pathlib import Path

from harness.config.schema import Config
from harness.errors import InputProblem

FOLDERS, FILES = ("snapshot", "a", "b"), ("foreign", "prompt.path", "model.path")
CALLED = {"foreign": "from"}


def check(cfg: Config) -> None:
    """Raise InputProblem for a local path that names nothing. What lies there, who reads it finds out."""
    for key in (*FOLDERS, *FILES):
        group, _, inner = key.rpartition(".")
        path = getattr(getattr(cfg, group) if group else cfg, inner, None)
        if not path or "://" in str(path) or Path(path).expanduser().exists():
            continue
        if key == "model.path":
            raise InputProblem(
                f"model.path={path} does not exist. Give the folder that holds config.json and the "
                "weights, or a GGUF file."
            )
        if any(Path(path).expanduser().absolute().parent.glob(".*.tmp")):
            continue  # who reads it tells what a killed save has left there
        what = "directory" if key in FOLDERS else "file"
        raise InputProblem(
            f"{CALLED.get(key, key)}={path}: there is no such {what}. Check the path."
        )
