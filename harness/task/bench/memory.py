"""Memory that this process takes while something runs."""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Sampled:
    """Bytes above `base`, at most; `over` ends the sampling."""

    peak: int = 0
    base: int = 0
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def watched() -> Iterator[Sampled]:
    """Peak of this process's own (anonymous) memory above what it had, sampled every millisecond.
    Mapped files are not counted: the kernel takes those pages back whenever it wants."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    sampled = Sampled(base=_anonymous())

    def watch() -> None:
        while not sampled.over.is_set():
            sampled.peak = max(sampled.peak, _anonymous() - sampled.base)
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield sampled
    finally:
        sampled.over.set()
        thread.join()


def _anonymous() -> int:
    resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
