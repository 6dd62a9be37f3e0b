"""Paths that a job reads and writes, checked before anything heavy is imported."""

import json
import os
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from harness import machine
from harness.config import moved, utf8
from harness.config.schema import Config
from harness.errors import ConfigProblem, InputProblem, printable

FOLDERS, FILES = ("snapshot", "a", "b"), ("foreign", "prompt.path", "model.path")
CALLED = {"foreign": "from"}
SAVED = "a directory written by task=save."
NEEDED = {  # keys without which a task has nothing to do, and how it says so
    **dict.fromkeys(
        ("resume", "verify", "inspect", "prune"), (("snapshot",), f"snapshot=DIR, {SAVED}")
    ),
    "diff": (("a", "b"), "a=DIR and b=DIR, two snapshots."),
    "audit": (("run",), "run=DIR (a run or a sweep) or run=ID (of MLflow)."),
}
WRITING = ("save", "prune", "resume", "loop")  # `out=` names one snapshot
REPLACED = ("turns", "text")  # prompts that `text=` may stand in for
NO_CONFIG = (
    "is not a save_pretrained directory: it has no config.json. Give the folder that holds config.json and the "
    "weights, or a GGUF file."
)


def check(cfg: Config) -> None:
    """Raise InputProblem for a path that names nothing, or a file of another kind, for an empty text, for a key that
    the task cannot do without, and for an `out=` that cannot be written."""
    if cfg.text == "" and "text" in cfg.task.reads and not cfg.snapshot:
        raise InputProblem("text= is empty: there is nothing to read. Give at least one word.")
    if cfg.model.path and _no_model(moved.place(cfg.model.path)):
        raise InputProblem(
            f"model.path={cfg.model.path} is a file, and no GGUF file. Give the folder that holds config.json "
            "and the weights, or a GGUF file."
        )
    if cfg.model.path and moved.place(cfg.model.path).is_dir() and not moved.there(cfg.model.path):
        raise InputProblem(f"model.path={cfg.model.path} {NO_CONFIG}")
    _check_needed(cfg)
    _check_out(cfg)
    for key in (*FOLDERS, *FILES):
        group, _, inner = key.rpartition(".")
        path = getattr(getattr(cfg, group) if group else cfg, inner, None)
        read = moved.place if key == "model.path" else Path
        if not path or "://" in str(path) or read(str(path)).expanduser().exists():
            continue
        if key == "model.path":
            raise InputProblem(
                f"model.path={path} does not exist.{near(Path(path), False)} Give the folder that holds config.json "
                "and the weights, or a GGUF file."
            )
        if any(Path(path).expanduser().absolute().parent.glob(".*.tmp")):
            continue  # who reads it tells what a killed save has left there
        what = "directory" if key in FOLDERS else "file"
        meant = near(Path(path), key in FOLDERS) or " Check the path."
        raise InputProblem(f"{CALLED.get(key, key)}={path}: there is no such {what}.{meant}")
    _check_prompt(cfg)


def near(path: Path, folder: bool = True) -> str:
    """What is there and most like `path`, of which nothing is, as the end of a message; empty where nothing is like it.
    folder: only directories are meant."""
    path = path.expanduser()
    missing = next((p for p in [*reversed(path.parents), path] if not p.exists()), None)
    if missing is None:
        return ""
    files = missing == path and not folder  # what lies on the way is a directory
    with suppress(OSError):
        there = [p for p in missing.parent.iterdir() if files or p.is_dir()]
        if close := get_close_matches(missing.name, [p.name for p in there], n=1):
            meant = missing.with_name(close[0])
            whole = meant / path.relative_to(missing)
            return f" Did you mean {printable(str(whole if whole.exists() else meant))}?"
    return ""


def _check_prompt(cfg: Config) -> None:
    """Raise InputProblem for a prompt that is said twice, and for a file of it that is no text."""
    if "text" not in cfg.task.reads or cfg.snapshot:
        return
    said_twice(cfg)
    if cfg.prompt.name in ("file", "jsonl") and cfg.prompt.path and not cfg.prompt.ids:
        utf8.read(cfg.prompt.path)


def said_twice(cfg: Config) -> None:
    """Raise InputProblem where `text=` stands beside a prompt that it does not replace."""
    if cfg.text is not None and (cfg.prompt.name not in REPLACED or cfg.prompt.ids):
        other = "prompt.ids" if cfg.prompt.ids else f"prompt={cfg.prompt.name}"
        raise InputProblem(f"text= and {other} both say what is read. Leave one of them out.")


def no_place(at: int, tokens: int) -> InputProblem:
    """That a state of so many tokens has no place `at`."""
    return InputProblem(
        f"at={at} is not a place in this state, which has {tokens} tokens: give 1 to {tokens}."
    )


def _no_model(path: Path) -> bool:
    """Whether a file lies there that can be read and is no GGUF file, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(4) != b"GGUF"
    except OSError:  # a folder, nothing at all, or closed to us
        return False


def _check_needed(cfg: Config) -> None:
    """Raise InputProblem, or ConfigProblem, where a key is missing without which there is nothing to do."""
    if cfg.task.name == "prune" and cfg.prune.name == "none" and cfg.quantize.name == "none":
        raise ConfigProblem(
            "task=prune needs a policy: prune=keep_last, sink_window, knorm, ... (or quantize=int8, "
            "which keeps every token in fewer bytes)."
        )
    keys, words = NEEDED.get(cfg.task.name, ((), ""))
    if not all(getattr(cfg, key) for key in keys):
        raise InputProblem(f"task={cfg.task.name} needs {words}")


def _occupied(target: Path) -> bool:
    """Whether a snapshot and nothing else lies there; what cannot be read, and strangers' files, who writes tells."""
    try:
        manifest = json.loads((target / "manifest.json").read_text("utf-8"))
        own = {str(row["file"]).partition("/")[0] for row in manifest["files"]}
        return {p.name for p in target.iterdir()} <= own | {"manifest.json", "tokenizer"}
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _check_out(cfg: Config) -> None:
    """Raise InputProblem where neither `out=` nor the folder that it would lie in takes a file."""
    if not cfg.out or "://" in cfg.out or "out" not in cfg.task.reads or cfg.save.name == "memory":
        return
    place = Path(cfg.out).expanduser().absolute()
    if cfg.task.name in WRITING and not cfg.overwrite and _occupied(Path(cfg.out).expanduser()):
        raise InputProblem(
            f"{cfg.out} holds a snapshot already. Choose another out=DIR, or replace it with overwrite=true."
        )
    above = next(p for p in (place, *place.parents) if os.access(p, os.F_OK))
    if not above.is_dir() or (os.access(above, os.W_OK | os.X_OK) and machine.has_disk(above)):
        return
    raise InputProblem(
        f"out={cfg.out} cannot be written to: {above} takes no files of yours. Give a folder that does."
    )
