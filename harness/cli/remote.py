"""How far a sweep is whose points run elsewhere: told from their folders while the launcher waits."""

import sys
import threading
import time
from collections.abc import Callable

FIRST, LAST = 5.0, 60.0  # seconds between two lines: ever longer
_ended: list[threading.Event] = []  # of the sweep that is watched


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
