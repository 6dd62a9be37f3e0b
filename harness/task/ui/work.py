"""Work that a desk does in a thread of its own: it goes on whoever looks, says how far it is and can be
stopped. And the turns in which the work of every desk gets the one model."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import machine, progress

SURE = 2.0  # seconds of work after which the rest can be guessed


class Stopped(Exception):
    """A person ended it."""


class Turns:
    """A reentrant lock that whoever waits gets before its owner gets it again."""

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
        """Let whoever waits have a turn; the caller's own goes on afterwards."""
        if self._owner != threading.get_ident() or not self._door.locked():
            return
        depth, self._depth = self._depth, 1
        self.__exit__()
        self.__enter__()
        self._depth = depth


class Work:
    """One piece of work. what: in words. total: tokens, 0 where they are not counted."""

    def __init__(self, what: str, total: int = 0):
        self.what, self.total, self.done = what, total, 0
        self.part = ""  # that goes on now, and how far
        self._began = time.monotonic()
        self._ending = threading.Event()

    def stop(self) -> None:
        """Let it end at its next `advance`."""
        self._ending.set()

    def advance(self, by: int = 1) -> None:
        """So many tokens more are done. Raises Stopped where somebody ended the work."""
        self.done += by
        if self._ending.is_set():
            raise Stopped

    def __str__(self) -> str:
        if not self.total:
            return f"{self.what}{self.part}."
        took = time.monotonic() - self._began
        rest = took / self.done * (self.total - self.done) if self.done else 0.0
        left = f", about {rest:.0f} s left" if took > SURE and rest >= 1 else ""
        return f"{self.what} {self.done} of {machine.many(self.total, 'token')}{left}."


class Counted:
    """A `progress.Display` of one thread: tells `work` what is counted, and between two layers lets the
    others have the model."""

    close = True

    def __init__(self, work: Work, turns: Turns):
        self._work, self._turns, self._owner = work, turns, threading.get_ident()
        self._what, self._done, self._total = "", 0.0, 1.0

    def begin(self, what: str, total: float) -> None:
        self._what, self._done, self._total = what, 0.0, max(total, 1.0)
        self.advance(0)

    def advance(self, by: float) -> None:
        if threading.get_ident() != self._owner:
            return  # another desk's pass through layers that this one listens to
        self._done += by
        self._work.part = f": {self._what}, {min(self._done / self._total, 1):.0%}"
        self._work.advance(0)
        self._turns.breathe()

    def name(self, what: str, still: bool = False) -> None:
        """Parts of a whole are not told."""

    def end(self) -> None:
        """What comes next says its own name."""


@contextmanager
def counted(work: Work | None, turns: Turns) -> Iterator[None]:
    """What is counted inside the block, by this thread, is told to `work`."""
    if work is None:
        yield
        return
    progress.show_on(Counted(work, turns))
    try:
        yield
    finally:
        progress.show_on(None)
