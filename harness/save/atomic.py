"""Directories that appear whole or not at all: temporary name, fsync, rename or atomic exchange."""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import InputProblem

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def directory(target: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary directory (owner-only) that becomes `target` when the block ends well.

    An existing snapshot at `target` is replaced in one atomic step; a crash leaves the old one or
    the new one. Raises InputProblem when the place cannot be written or holds something else.
    """
    target = target.absolute()
    _refuse_foreign(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        yield temporary
        if sync:
            for path in temporary.rglob("*"):
                _sync(path)
            _sync(temporary)
        _publish(temporary, target)
        if sync:
            _sync(target.parent)
    except OSError as problem:
        raise InputProblem(
            f"cannot write a snapshot to {target}: {problem.strerror or problem}. "
            "Nothing was changed there; free some space or choose another out=DIR."
        ) from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _refuse_foreign(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputProblem(f"{target} is not a directory; choose another out=DIR.")
    if target.is_dir() and any(target.iterdir()) and not (target / "manifest.json").exists():
        raise InputProblem(
            f"{target} holds files that are not a snapshot, so it is left alone. "
            "Choose an empty or new out=DIR."
        )


def _publish(temporary: Path, target: Path) -> None:
    if not target.exists():
        temporary.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    exchange = getattr(libc, "renameat2", None)
    paths = [os.fsencode(temporary), os.fsencode(target)]
    if exchange and exchange(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return  # the old snapshot now has the temporary name and is removed by the caller
    aside = target.with_name(f".{target.name}.{os.urandom(4).hex()}.old.tmp")
    target.rename(aside)
    temporary.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
