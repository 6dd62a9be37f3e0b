"""How far a sweep is whose points run elsewhere: told from their folders while the launcher waits."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

FIRST, LAST = 5.0, 60.0  # seconds between two lines: ever longer
HOMES = ("hydra_plugins.hydra_submitit_launcher.", "hydra_plugins.harness_launcher.")
_ended: list[threading.Event] = []  # of the sweep that is watched


def queued(config: Any, kind: str = "") -> bool:
    """Whether its launcher is one of submitit's, by its class: an option of one's own has its own name. kind: Slurm or
    Local, either where it is empty."""
    target = str(config.hydra.launcher.get("_target_"))
    return target.startswith(HOMES) and kind in target.rpartition(".")[2]


def begin(count: Callable[[], int], total: int | None) -> None:
    """Tell on stderr, from a thread, how many points are finished, whenever more are, until `end`."""
    _ended[:] = [threading.Event()]
    threading.Thread(target=_tell, args=(count, total, _ended[0]), daemon=True).start()


def end() -> None:
    """Say no more. Without effect where nothing was begun."""
    for event in _ended:
        event.set()
    _ended.clear()


def _tell(count: Callable[[], int], total: int | None, ended: threading.Event) -> None:
    from harness.report.terminal.bar import span

    said, pause = count(), FIRST
    first: tuple[float, int] | None = None  # when points were first seen to end, and how many had
    while not ended.wait(pause):
        if (done := count()) == said:
            continue
        said, pause = done, min(pause * 1.5, LAST)
        began, counted = first = first or (time.monotonic(), done)
        of = f" of {total}" if total else ""
        left = ""
        if total and counted < done < total:  # the first ones waited in the queue and imported
            pace = (time.monotonic() - began) / (done - counted)
            left = f", {span(pace * (total - done))} left"
        sys.stderr.write(f"[{done}]{of} points are finished{left}\n")
        sys.stderr.flush()
