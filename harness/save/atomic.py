"""Directories that appear whole or not at all: temporary name, fsync, rename or atomic exchange."""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import interrupt
from harness.errors import InputProblem, printable
from harness.save import contents, files, leftovers

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass
class Growing:
    """A directory being written. `finished` says that a file is complete: its fsync starts at once,
    in the background, while the next file is prepared."""

    path: Path
    pool: ThreadPoolExecutor | None
    waiting: list[Future[None]] = field(default_factory=list)

    def finished(self, path: Path) -> None:
        if self.pool:
            self.waiting.append(self.pool.submit(_sync, path))

    def settle(self) -> None:
        """Sync the folders too (one journal commit serves all), and wait until everything is on the
        disk. Raises OSError for what did not get there."""
        self.finished(self.path)
        for folder in (p for p in self.path.iterdir() if p.is_dir()):
            self.finished(folder)
        for job in self.waiting:
            job.result()


@contextmanager
def directory(target: Path, sync: bool = True, overwrite: bool = False) -> Iterator[Growing]:
    """Yield a temporary directory (owner-only) that becomes `target` when the block ends well.

    overwrite: an existing snapshot at `target` is replaced in one atomic step; a crash leaves the
    old one or the new one. What crashed writers left behind is removed. `finished` must be called
    for every file. Raises InputProblem when the place cannot be written, holds a snapshot that is
    not to be replaced, or anything else.
    """
    target = target.absolute()
    temporary, lock, note, published = None, None, ExitStack(), False
    pool = ThreadPoolExecutor(16, "fsync") if sync else None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        recover(target)
        refuse(target, overwrite)
        leftovers.remove(target.parent)
        with interrupt.held():
            temporary, lock = locked(target)
            note.enter_context(leftovers.noted(temporary))
        growing = Growing(temporary, pool)
        yield growing
        growing.settle()
        with interrupt.held():
            _publish(temporary, target, overwrite)
            published = True
        if sync:
            _sync(target.parent)
    except (OSError, files.Unreadable) as problem:
        message = getattr(problem, "strerror", None) or problem
        if published:
            raise InputProblem(
                f"{target} was written, but the disk did not confirm it: {message}. "
                f"Look at it with task=verify snapshot={target}, and save again if it is not whole."
            ) from problem
        full = getattr(problem, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free some space or " * full
        raise InputProblem(
            f"cannot write a snapshot to {target}: {message}. "
            f"Nothing was changed there; {remedy}choose another out=DIR."
        ) from problem
    finally:
        with interrupt.held():
            if pool:
                pool.shutdown()
            if temporary and published:  # what was replaced now has this name
                leftovers.discard(temporary, wait=True)
            elif temporary:
                shutil.rmtree(temporary, ignore_errors=True)
            note.close()
            if lock is not None:
                os.close(lock)


def check(target: Path, overwrite: bool = False) -> None:
    """Raise InputProblem, before any work, when `target` can never be written as a snapshot."""
    target = target.absolute()
    refuse(target, overwrite)
    above = next((p for p in target.parents if os.path.lexists(p)), target)
    if not above.is_dir():
        raise InputProblem(f"{above} is not a directory, so {target} cannot be in it.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputProblem(f"{above} may not be written to; choose another out=DIR.")


def recover(target: Path) -> None:
    """Put back a snapshot that a crash left under its set-aside name (systems without exchange)."""
    if not os.path.lexists(target):
        for aside in sorted(target.parent.glob(f".{_escaped(target.name)}.*.old")):
            aside.rename(target)
            return


def locked(target: Path) -> tuple[Path, int]:
    """A new temporary directory, locked for as long as this writer lives."""
    while True:
        path = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.tmp")
        path.mkdir(mode=0o700)
        lock = None
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists():
                return path, lock
        except (FileNotFoundError, BlockingIOError):
            pass  # another writer took it for a stale one, just before it was locked
        except OSError:
            path.rmdir()
            if lock is not None:
                os.close(lock)
            raise
        if lock is not None:
            os.close(lock)


def refuse(target: Path, overwrite: bool) -> None:
    """Raise InputProblem for what is not to be replaced. Other people's files never are."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputProblem(f"{target} is not a directory; choose another out=DIR.")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not (target / "manifest.json").exists():
        raise InputProblem(
            f"{target} holds files that are not a snapshot, so it is left alone. "
            "Choose an empty or new out=DIR."
        )
    try:
        strangers = contents.foreign(target)
    except (OSError, ValueError) as problem:
        message = getattr(problem, "strerror", None) or problem
        raise InputProblem(f"{target} cannot be read, so it is left alone: {message}.") from None
    if strangers:
        more = f" and {len(strangers) - 1} more" if strangers[1:] else ""
        raise InputProblem(
            f"{target} holds {printable(strangers[0])}{more} beside its snapshot (or its manifest "
            "cannot be read), so it is left alone. Move that away, or choose another out=DIR."
        )
    if not overwrite:
        raise InputProblem(
            f"{target} holds a snapshot already. Choose another out=DIR, or replace it with "
            "overwrite=true."
        )


def _publish(temporary: Path, target: Path, overwrite: bool) -> None:
    while True:
        if not target.exists() or not overwrite:
            try:
                temporary.rename(target)
                return
            except OSError as problem:  # another writer was faster
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if not overwrite:
                    raise InputProblem(
                        f"{target} was written by somebody else meanwhile, and is left as it is. "
                        "Choose another out=DIR, or replace it with overwrite=true."
                    ) from None
        match exchange(temporary, target):
            case 0:
                return  # the old snapshot now has the temporary name and is removed by the caller
            case errno.ENOENT:
                continue
        aside = target.with_name(f".{target.name}.{os.urandom(4).hex()}.old")
        target.rename(aside)
        temporary.rename(target)
        aside.rename(temporary)
        return


def exchange(one: Path, two: Path) -> int:
    """Let two directories change places in one step: 0, or the errno (ENOSYS where that cannot be)."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None)
    if call is None:
        return errno.ENOSYS
    paths = [os.fsencode(path) for path in (one, two)]
    if call(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return 0
    return ctypes.get_errno()


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
