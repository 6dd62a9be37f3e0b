"""Ctrl-C and `kill`: raised once, as one exception; what must not be cut in two puts them off.

Python raises a signal's exception in the main thread, wherever it happens to be. So a job listens
for as long as it runs (`listening`), and the few steps that have to be done whole say so (`held`).
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AGAIN = 5.0  # seconds after which a job that goes on past its limit is told once more
SAME = 2.0  # seconds in which a further signal is an impatient repetition: cleaning up has begun
SOON = 0.05  # seconds after which a signal that came where nothing may be cut is sent again
IMPORTS = "<frozen importlib"  # libraries in C++ import while they start, and end the process if it raises
OWNERS = f"{os.sep}llvmlite{os.sep}"  # hands objects to C++ in two lines: cut between, they are freed twice
_last: list[tuple[float, int]] = []  # (when, exit code) of the signals that were raised
_limits: list[float] = []  # of the job that runs now
_began: list[Any] = []  # the frame that listens
_told: list[int] = []  # signals that were put off, and told so
WAITS = "\nstopping: as soon as the library that is being loaded is whole\n"


class Stopped(KeyboardInterrupt):
    """The job was told to end. Its text, once it is known: what was kept and how to go on."""


@contextmanager
def listening() -> Iterator[None]:
    """Raise `Stopped` for SIGINT and SIGTERM inside the block; outside the main thread do nothing.

    A signal that the caller ignores (as under nohup) stays ignored.
    """
    _last.clear()
    _told.clear()
    _began[:] = [sys._getframe(2)]
    before = sys.unraisablehook
    sys.unraisablehook = lambda report: _again(report, before)
    try:
        with _handled(_stop):
            yield
    finally:
        sys.unraisablehook = before
        _began.clear()


def remembered() -> None:
    """In a launcher's worker, for as long as it lives: Ctrl-C raises `Stopped`, so `stopped` knows of it
    where a library makes another exception of that. A launcher's own handler stays."""
    mine = threading.current_thread() is threading.main_thread()
    if mine and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


@contextmanager
def held() -> Iterator[None]:
    """Put SIGINT, SIGTERM and a limit off until the block ends; they then do what they would have done.

    Works under any handler, so also for a program that uses the Python API.
    """
    arrived: list[int] = []
    try:
        with _handled(lambda number, frame: arrived.append(number), (*SIGNALS, signal.SIGALRM)):
            yield
    finally:
        if arrived:  # a limit comes again by itself
            signal.raise_signal(next((n for n in arrived if n in SIGNALS), arrived[0]))


@contextmanager
def limited(seconds: float | None, problem: Exception) -> Iterator[None]:
    """Raise `problem` in the block once it has taken so long, again and again where a library makes
    nothing of it, until it is `in_time`. Not inside what is `held`, and only in the main thread; None
    sets no limit."""

    def late(number: int, frame: Any) -> None:
        if _whole(frame):
            signal.setitimer(signal.ITIMER_REAL, SOON, AGAIN)
        else:
            raise problem

    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    _limits.append(seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        in_time()
        signal.signal(signal.SIGALRM, before)


def in_time() -> None:
    """The work was done within its limit; keeping it takes as long as it takes."""
    if _limits:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _limits.clear()


@contextmanager
def noted() -> Iterator[list[int]]:
    """Note every Ctrl-C in the list and go on: who looks there stops where it suits. Outside the main
    thread, and where Ctrl-C is ignored, the list stays empty."""
    arrived: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if here else signal.SIG_IGN
    if before in (signal.SIG_IGN, None):
        yield arrived
        return
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGINT, before)


def deaf() -> None:
    """Ignore both from now on: the work is done, the process is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def heard() -> None:
    """What a signal asked for is being done: `check` and `stopped` know nothing of it any more."""
    _last.clear()
    _told.clear()


def stopped() -> bool:
    """Whether this job was told to end, even if a library made another exception of it."""
    return bool(_last)


def check() -> None:
    """Raise `Stopped` again if a library swallowed it. Called where work begins."""
    if _last and time.monotonic() - _last[-1][0] > SAME:
        raise Stopped


def code() -> int:
    """The exit code: 128 and the signal's number, so 130 for Ctrl-C and 143 for `kill`."""
    return _last[0][1] if _last else 128 + signal.SIGINT


def word() -> str:
    return "terminated" if code() == 128 + signal.SIGTERM else "interrupted"


def _stop(number: int, frame: Any) -> None:
    if _whole(frame):
        _tell(number)
        _send(number, SOON)
        return
    now = time.monotonic()
    if not _last or now - _last[-1][0] > SAME:
        _last.append((now, 128 + number))
        raise Stopped


def _tell(number: int) -> None:
    """Say once, at once, that the signal was heard: an import may take seconds. By a job's own process only."""
    if _began and not _told:
        _told.append(number)
        with suppress(OSError):  # past Python's own buffers, which may be what was interrupted
            os.write(2, WAITS.encode())


def _again(report: Any, otherwise: Any) -> None:
    """Python drops what is raised in a finalizer or a weak reference's callback: send it once more."""
    if not isinstance(report.exc_value, Stopped):
        otherwise(report)
        return
    _, code = _last.pop()
    _send(code - 128, 0.02)


def _whole(frame: Any) -> bool:
    """Whether what goes on must not be cut in two: an import, or a compiled program being made or loaded."""
    while frame is not None and frame not in _began:
        file = frame.f_code.co_filename
        if file.startswith(IMPORTS) or OWNERS in file:
            return True
        frame = frame.f_back
    return False


def _send(number: int, seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


@contextmanager
def _handled(handler: Any, numbers: Sequence[int] = SIGNALS) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.getsignal(n) for n in numbers}
    ours = [n for n, old in before.items() if old not in (signal.SIG_IGN, None)]
    try:
        for number in ours:
            signal.signal(number, handler)
        yield
    finally:
        _give_back({number: before[number] for number in ours})


def _give_back(handlers: dict[int, Any]) -> None:
    """Install them, the others too where the first one is called, and raises, at once."""
    if handlers:
        (number, handler), *rest = handlers.items()
        try:
            signal.signal(number, handler)
        finally:
            _give_back(dict(rest))
