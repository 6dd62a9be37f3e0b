"""The command line run in this process: models and imports are shared."""

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest


def results(place: Path) -> set[Path]:
    """Every run's result below `place`, MLflow's own copies left out."""
    return {p for p in place.glob("runs/**/result.json") if "artifacts" not in p.parts}


def run(arguments: Sequence[str], fresh: Callable[..., subprocess.CompletedProcess]) -> int:
    """The exit code of `python -m harness` in the working directory. `fresh` runs the Python processes that it
    starts: an audit runs a record again in one."""
    from harness import __main__ as front

    plain, taken = subprocess.run, ("cwd", "env", "timeout", "capture_output", "text")

    def started(command: Any, *more: Any, **how: Any) -> subprocess.CompletedProcess:
        if list(command)[:2] != [sys.executable, "-m"]:
            return plain(command, *more, **how)
        return fresh(command, **{key: how[key] for key in taken if key in how})

    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["harness", *arguments])
        patch.setattr(subprocess, "run", started)
        try:
            return front.main()
        finally:  # a process ends with its logs; the next run here writes into none of this one's
            root.setLevel(level)
            for handler in [h for h in root.handlers if h not in handlers]:
                root.removeHandler(handler)
                handler.close()
