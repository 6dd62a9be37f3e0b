"""What one command's process does around its work: import libraries, and end.

Half of a short job was neither: Python's collector walks the growing heap dozens of times while
libraries are imported, and takes five thousand modules apart before the process ends.
"""

import atexit
import gc
import io
import os
import re
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

OBJECTS = (20_000, 20, 50)  # between collections; Python's own (700, 10, 10) suits a small heap
KEPT = ("encoding", "errors", "line_buffering", "write_through")  # of a stream
NEEDED = (
    "blake3",
    "hydra",
    "omegaconf",
    "rich",
    "torch",
    "transformers",
    "safetensors",
    "pandera",
    "numpy",
    "yaml",
)
_COMMAND = re.compile(
    r"(?<![\w./-])python -m harness\b"
)  # no path before it: that is spelled already
UNUSED = ("hypothesis",)  # pandera imports it to make up test data


class Listened(io.FileIO):
    """Where a process writes to. Whoever reads may stop (`| head`): the job goes on to its own end."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(data)


def patient() -> None:
    """From now on it is no failure of this process if nobody reads what it writes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream is not getattr(sys, f"__{name}__"):  # closed, or another one
            continue
        stream.flush()
        raw = Listened(stream.fileno(), "w", closefd=False)
        buffer: Any = raw if stream.write_through else io.BufferedWriter(raw)
        settings = {key: getattr(stream, key) for key in KEPT}
        setattr(sys, name, io.TextIOWrapper(buffer, **settings))


def begin() -> None:
    """Before the first import: collect less often, keep out what no command uses, and mind no pipe."""
    patient()
    gc.set_threshold(*OBJECTS)
    for package in UNUSED:
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]


def leave(code: int) -> None:
    """End the process with `code`: threads that are to be waited for end, what was registered for its
    end runs, what was written is flushed. Nothing is taken apart: libraries in C++ have aborted at
    that, where a thread of theirs or a daemon was still about."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # a disk that is full; a stream that was closed
            stream.flush()
    os._exit(code)


def spelled() -> str:
    """The words that start this program once more from where the person stands: `harness`,
    `python -m harness`, or with the path of the one that is running."""
    started = Path(sys.argv[0])
    installed = started.stem == "harness" and started.suffix in ("", ".exe")
    name, suffix = ("harness", "") if installed else ("python", " -m harness")
    running = Path(started if installed else sys.executable).absolute()
    usual = shutil.which(name)
    if (usual is not None and Path(usual).absolute() == running) or not running.exists():
        return name + suffix
    here = Path.cwd()
    shown = running.relative_to(here) if running.is_relative_to(here) else running
    return f"{shown}{suffix}"


def retold(text: str) -> str:
    """`text` with the commands in it spelled as `spelled` does: a reader at this terminal can paste them."""
    return _COMMAND.sub(lambda _: spelled(), text)


def lacking(problem: ModuleNotFoundError) -> str:
    """What to do where this Python lacks a package that the harness needs; empty where the module is one's own."""
    name = str(problem.name).partition(".")[0]
    if name not in NEEDED:
        return ""
    venv = Path(__file__).parents[1] / ".venv" / "bin" / "python"
    mend = (
        f"Run it with {shown(venv)} -m harness"
        if venv.exists()
        else "Run `make run` once, which installs it"
    )
    return f"{sys.executable} has no package {name}, which the harness needs. {mend}."


def shown(path: Path | str) -> str:
    """`path` relative to the working directory where it lies below it, else absolute; URLs as is."""
    if "://" in str(path):
        return str(path)
    absolute, here = Path(path).absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
