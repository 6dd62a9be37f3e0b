"""What a job is to read: whether it can be there is told before anything heavy is imported."""

from pathlib import Path

from harness.config.schema import Config
from harness.errors import InputProblem

FOLDERS, FILES = ("snapshot", "a", "b"), ("foreign", "prompt.path", "model.path")
CALLED = {"foreign": "from"}


def check(cfg: Config) -> None:
    """Raise InputProblem for a local path that names nothing, a model's that is a file of another kind, and an
    empty text. What else lies there, who reads it finds out."""
    if cfg.text == "" and "text" in cfg.task.reads and not cfg.snapshot:
        raise InputProblem("text= is empty: there is nothing to read. Give at least one word.")
    if cfg.model.path and _no_model(Path(cfg.model.path).expanduser()):
        raise InputProblem(
            f"model.path={cfg.model.path} is a file, and no GGUF file. Give the folder that holds config.json "
            "and the weights, or a GGUF file."
        )
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


def _no_model(path: Path) -> bool:
    """Whether a file lies there that can be read and is no GGUF file, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(4) != b"GGUF"
    except OSError:  # a folder, nothing at all, or closed to us
        return False
