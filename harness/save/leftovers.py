"""Temporary directories whose writer was killed: found again wherever they lie, and removed.

A writer locks its directory for as long as it lives and notes it in the user's state folder. Every
later save removes those beside its own target, and those noted, that nobody holds a lock on.
"""

import fcntl
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness import machine
from harness.errors import printable
from harness.save import contents

_NAME = re.compile(r"\..{1,200}\.[0-9a-f]{12}\.tmp")
_NOTED = 4096  # notes looked at
WAIT = 5.0  # seconds


@contextmanager
def noted(path: Path) -> Iterator[None]:
    """While `path` is written, a note says where it is."""
    note = None
    with suppress(OSError, RuntimeError):
        folder = _notes()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        note = folder / path.name.rpartition(".tmp")[0].rpartition(".")[2]
        note.write_text(str(path.absolute()), "utf-8", "surrogateescape")
    try:
        yield
    finally:
        if note and not os.path.lexists(path):
            with suppress(OSError):
                note.unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove what dead writers left in `folder`, and wherever a note says."""
    with suppress(OSError):
        for path in folder.glob(".*.tmp"):
            discard(path)
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        for _, note in zip(range(_NOTED), _notes().iterdir(), strict=False):
            path = Path(note.read_text("utf-8", "surrogateescape"))
            discard(path)
            if not os.path.lexists(path):
                note.unlink(missing_ok=True)


def discard(path: Path, wait: bool = False) -> None:
    """Remove `path` if it is a temporary directory of a dead writer; nothing else is touched. It may
    be the snapshot that was replaced: had somebody put a file into it at the last moment, it is kept
    beside. wait: for who else holds it (its writer, about to end, or another that removes it). What
    somebody holds for longer, or the disk does not let go, is left to the next save."""
    with _locked_if_dead(path, WAIT * wait) as dead, suppress(OSError, ValueError):
        if dead and contents.foreign(path, begun=True):
            name = path.name[1:].rpartition(".tmp")[0].rpartition(".")[0]
            path.rename(path.with_name(f"{name}.replaced-{os.urandom(4).hex()}"))
        elif dead:
            shutil.rmtree(path, ignore_errors=True)


def beside(place: Path | str) -> str:
    """One line about what dead writers left in the folder of `place`: names, size, how to remove it.
    Empty for a URL, where there is nothing, and for what a living writer holds. Removes nothing."""
    dead: list[Path] = []
    if isinstance(place, str):
        return ""
    with suppress(OSError):
        for path in sorted(place.absolute().parent.glob(".*.tmp")):
            with _locked_if_dead(path) as is_dead:
                dead += [path] * is_dead
    if not dead:
        return ""
    size = machine.human(sum(map(_nbytes, dead)))
    names = shlex.join(str(path) for path in dead)
    return printable(
        f"Beside it lies what a killed save left, {size}. The next save there removes it, "
        f"or you do: rm -r -- {names}"
    )


@contextmanager
def _locked_if_dead(path: Path, wait: float = 0.0) -> Iterator[bool]:
    """Whether `path` is a temporary directory of ours whose writer is dead; then it is locked inside.
    wait: for so many seconds, while somebody else holds it."""
    lock, dead = None, False
    if _NAME.fullmatch(path.name):
        with suppress(OSError):  # gone, or a living writer's
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if os.fstat(lock).st_uid == os.getuid():
                dead = _locked(lock, time.monotonic() + wait)
    try:
        yield dead
    finally:
        if lock is not None:
            os.close(lock)


def _locked(handle: int, until: float) -> bool:
    """Whether nobody else holds the lock, tried until then and once at least."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.005)


def _nbytes(folder: Path) -> int:
    with suppress(OSError):
        return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file())
    return 0


def _notes() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "harness" / "writing"
