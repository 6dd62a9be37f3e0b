"""A program out of a file from elsewhere, in a process of its own: no file can say how long it runs, nor in how much
memory. The process is a fork of this one, so that it has what was loaded here, and ends with it."""

import os
import pickle
import resource
import select
import signal
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ROOM = 1 << 30  # bytes of memory that it may take
LONG = 300  # characters of what it says of a failure
_FRAME = struct.Struct("<?Q")


class Confined:
    """work: makes a text of a question that can be pickled; it sees this process as it was at the first one."""

    def __init__(self, work: Callable[..., str]):
        self._work = work
        self._child = self._parent = 0
        self._to = self._from = -1
        self._lock = threading.Lock()

    def ask(self, *question: Any, seconds: float = 10.0, nbytes: int = 64 << 20) -> str:
        """What `work` makes of `question`. Raises ValueError: what `work` raised, or that it took more."""
        with self._lock:
            if self._parent != os.getpid():  # a fork of this process asks one of its own
                self._close()
                self._fork()
            end, data = time.monotonic() + seconds, pickle.dumps((seconds, question))
            try:
                with suppress(BrokenPipeError):
                    _write(self._to, struct.pack("<Q", len(data)) + data)
                done, size = _FRAME.unpack(self._read(_FRAME.size, end))
                if size > nbytes:
                    raise EOFError
                text = self._read(size, end).decode("utf-8", "surrogatepass")
            except EOFError:
                self._close()
                raise ValueError(
                    f"it takes more than {seconds:g} seconds, or more memory than a text needs"
                ) from None
            except BaseException:
                self._close()  # where it stands is not known
                raise
        if not done:
            raise ValueError(text)
        return text

    def __del__(self) -> None:
        with suppress(OSError):
            self._close()

    def _read(self, count: int, end: float) -> bytes:
        """Raises EOFError where that does not come before `end`."""
        data, poll = bytearray(), select.poll()
        poll.register(self._from, select.POLLIN)
        while len(data) < count:
            left = end - time.monotonic()
            piece = left > 0 and poll.poll(left * 1000) and os.read(self._from, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def _fork(self) -> None:
        (asked, to), (answers, said) = os.pipe(), os.pipe()
        if not (child := os.fork()):
            _serve(self._work, asked, said)
        os.close(asked)
        os.close(said)
        self._child, self._parent, self._to, self._from = child, os.getpid(), to, answers

    def _close(self) -> None:
        if self._parent == os.getpid():
            with suppress(OSError):  # it has ended, or was waited for
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
        if self._parent:
            os.close(self._to)
            os.close(self._from)
        self._parent = 0


def _serve(work: Callable[..., str], asked: int, said: int) -> NoReturn:
    """The forked process: answers until nobody can ask any more."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        low, high = sorted(
            (asked, said)
        )  # locks and sockets of the other process are not to be held
        for first, last in ((3, low), (low + 1, high), (high + 1, 1 << 16)):
            os.closerange(first, last)
        with suppress(OSError, ValueError):  # a system without: who asks has a clock
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
        with os.fdopen(asked, "rb") as questions:
            while head := questions.read(8):
                seconds, question = pickle.loads(questions.read(*struct.unpack("<Q", head)))
                with suppress(OSError, ValueError):
                    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
                    resource.setrlimit(
                        resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, hard)
                    )
                try:
                    done, text = True, work(*question)
                except Exception as problem:
                    done, text = False, (str(problem) or type(problem).__name__)[:LONG]
                data = text.encode("utf-8", "surrogatepass")
                _write(said, _FRAME.pack(done, len(data)) + data)
    finally:
        os._exit(0)


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]
