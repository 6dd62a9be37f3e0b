"""What one command's process does around its work: import libraries, and end.

Half of a short job was neither: Python's collector walks the growing heap dozens of times while
libraries are imported, and takes five thousand modules apart before the process ends.
"""

import atexit
import gc
import os
import shutil
import sys
import threading
from pathlib import Path

OBJECTS = (20_000, 20, 50)  # between collections; Python's own (700, 10, 10) suits a small heap
UNUSED = ("hypothesis",)  # pandera imports it to make up test data


def begin() -> None:
    """Before the first import: collect less often, and keep out what no command uses."""
    gc.set_threshold(*OBJECTS)
    for package in UNUSED:
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]


def leave(code: int) -> None:
    """End the process with `code`: threads that are to be waited for end, what was registered for its
    end runs, what was written is flushed. Nothing is taken apart: libraries in C++ have aborted at
    that, where a thread of theirs or a daemon was still about."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more; Python says so with a code of its own
        sys.exit(code)
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
