"""Work in a thread of its own, with progress and a stop; and turns at the one model."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import machine, progress

SURE = 2.0  # seconds of work after which the remaining time is estimated


class Stopped(Exception):
    """A person ended the work."""


class Turns:
    """A reentrant lock that a waiting thread gets before its owner gets it again."""

    def __init__(self) -> None:
        self._door, self._inside = threading.Lock(), threading.Lock()
        self._owner, self._depth = 0, 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            with self._door:
                self._inside.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, *problem: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._inside.release()

    def breathe(self) -> None:
        """Let a waiting thread have a turn, then go on."""
        if self._owner != threading.get_ident() or not self._door.locked():
            return
        depth, self._depth = self._depth, 1
        self.__exit__()
        self.__enter__()
        self._depth = depth


class Work:
    """One piece of work. what: its label. total: tokens, 0 where they are not counted."""

    def __init__(self, what: str, total: int = 0):
        self.what, self.total, self.done = what, total, 0
        self.part = ""  # the current part and its progress
        self._began = time.monotonic()
        self._ending = threading.Event()

    def stop(self) -> None:
        """End at the next `advance`."""
        self._ending.set()

    def advance(self, by: int = 1) -> None:
        """Count `by` tokens. Raises Stopped after `stop`."""
        self.done += by
        if self._ending.is_set():
            raise Stopped

    def __str__(self) -> str:
        if not self.total:
            return f"{self.what}{self.part}."
        took = time.monotonic() - self._began
        seconds = took / self.done * (self.total - self.done) if self.done else 0.0
        left = f", about {seconds:.0f} s left" if took > SURE and seconds >= 1 else ""
        return f"{self.what} {self.done} of {machine.many(self.total, 'token')}{left}."


class Counted:
    """A `progress.Display` of one thread: passes progress to `work`, and lets other sessions have the
    model between two layers."""

    close = True

    def __init__(self, work: Work, turns: Turns):
        self._work, self._turns, self._owner = work, turns, threading.get_ident()
        self._what, self._done, self._total = "", 0.0, 1.0

    def begin(self, what: str, total: float) -> None:
        self._what, self._done, self._total = what, 0.0, max(total, 1.0)
        self.advance(0)

    def advance(self, by: float) -> None:
        if threading.get_ident() != self._owner:
            return  # another session's call passes through the same layers
        self._done += by
        self._work.part = f": {self._what}, {min(self._done / self._total, 1):.0%}"
        self._work.advance(0)
        self._turns.breathe()

    def name(self, what: str, still: bool = False) -> None:
        """Names of parts are not shown."""

    def end(self) -> None:
        """The next part begins with its own name."""


@contextmanager
def counted(work: Work, turns: Turns) -> Iterator[None]:
    """Progress of this thread inside the block goes to `work`."""
    progress.show_on(Counted(work, turns))
    try:
        yield
    finally:
        progress.show_on(None)
