"""Files of a snapshot, opened safely: plain files only, never a link, never more than was declared.

Writers go through a `Sink` (owner-only, digested on the way), readers through a `Source` (bounded).
"""

import ctypes
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import torch
from blake3 import blake3

from harness.errors import DigestMismatch
from harness.save import cipher
from harness.save.inmemory import InMemory
from harness.snapshot.digest import digest_stream

_START_WRITING, _STRIDE = 2, 8 << 20
_libc: Any = None


class Sink:
    """A new file, mode 0600. `write` digests what it is given; `write_raw` is for tensor bytes that
    the manifest digests one by one. `covered` counts the leading bytes that `digest` covers.

    key: encrypts what reaches the disk, under `name` (sizes and digests are of the contents).
    Raises OSError when the disk is full, also later through `problem` (a library may swallow it).
    """

    def __init__(
        self, path: Path, key: cipher.Key | None = None, name: str = "", salt: bytes | None = None
    ):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.path, self._handle = path, os.open(path, flags, 0o600)
        self.nbytes = self.covered = self._started = self._place = 0
        self.problem: OSError | None = None
        self._digest = blake3()
        self._cipher = cipher.Writer(key, name, self._put, salt) if key else None

    def write(self, data: Any) -> int:
        """Append and digest."""
        view = memoryview(data).cast("B")
        self._digest.update(view)
        self.covered += len(view)
        return self.write_raw(view)

    def write_raw(self, data: Any) -> int:
        """Append bytes that tensor digests cover. The kernel is told to begin writing at once."""
        view = memoryview(data).cast("B")
        if self._cipher:
            self._cipher.feed(view)
        else:
            self._put(view)
        self.nbytes += len(view)
        return len(view)

    def _put(self, data: Any) -> None:
        view = memoryview(data)
        written = 0
        try:
            while written < len(view):
                written += os.write(self._handle, view[written : written + _STRIDE])
                self._begin_writing(self._place + written)
        except OSError as problem:
            self.problem = problem
            raise
        self._place += written

    def flush(self) -> None:
        """Nothing is buffered here."""

    def digest(self) -> str:
        return self._digest.hexdigest()

    def __enter__(self) -> "Sink":
        return self

    def __exit__(self, *problem: Any) -> None:
        try:
            if self._cipher and problem[0] is None:
                self._cipher.end()
        finally:
            os.close(self._handle)

    def _begin_writing(self, end: int) -> None:
        if end - self._started >= _STRIDE:
            _sync_file_range(self._handle, self._started, end - self._started)
            self._started = end


def _sync_file_range(handle: int, offset: int, nbytes: int) -> None:
    """Start writing dirty pages without waiting, where the system can (Linux); fsync still follows."""
    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None)
    if call := getattr(_libc, "sync_file_range", None):
        call(handle, ctypes.c_int64(offset), ctypes.c_int64(nbytes), _START_WRITING)


class Source:
    """An opened payload file, or its contents. Reads never pass `nbytes`, nor `limit` where a reader
    sets one."""

    def __init__(self, file: "BinaryIO | InMemory", nbytes: int, tensor_bytes: int):
        self.file, self.nbytes, self.tensor_bytes = file, nbytes, tensor_bytes

    @cached_property
    def buffer(self) -> Any:
        """All of it: in memory where it is there already, else mapped. Tensors over it are writable;
        what is written never reaches the file."""
        if isinstance(self.file, InMemory):
            return self.file.room
        return mmap.mmap(self.file.fileno(), self.nbytes, access=mmap.ACCESS_COPY)

    def at(self, place: int, count: int) -> bytes:
        """At most `count` bytes from `place` on."""
        return bytes(self.buffer[place : min(place + count, self.nbytes)])

    def tensor(self, row: dict[str, Any], place: int) -> torch.Tensor:
        """The tensor that `row` declares, where its bytes lie: from `place` on. Raises ValueError when
        the file ends before."""
        dtype, nbytes = getattr(torch, row["dtype"]), row["nbytes"]
        if not 0 <= place <= self.nbytes - nbytes:
            raise ValueError(f"{row['name']} ends past the file")
        if not nbytes:
            return torch.empty(row["shape"], dtype=dtype)
        flat = torch.frombuffer(self.buffer, dtype=torch.uint8, count=nbytes, offset=place)
        flat = flat if place % dtype.itemsize == 0 else flat.clone()
        return flat.view(dtype).view(row["shape"])

    def read(self, count: int) -> bytes:
        """At most `count` bytes and never past the end of the file."""
        return self.file.read(max(0, min(count, self.nbytes - self.file.tell())))

    def exactly(self, count: int) -> bytes:
        """Exactly `count` bytes. Raises ValueError when the file ends before."""
        data = self.read(count)
        if len(data) != count:
            raise ValueError("it ends in the middle of a tensor")
        return data

    def ended(self) -> bool:
        return self.file.tell() >= self.nbytes


class Unreadable(ValueError):
    """It is there, but the system does not let it be opened: what is in it is not known."""


class Folder:
    """A directory held open: whatever is renamed or exchanged meanwhile, all is read from this one.

    stale: another directory that was read along with it has been replaced. Raises ValueError (a
    sentence) when there is none.
    """

    stale = False

    def __init__(self, path: Path):
        self.path = path
        try:
            self.handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ValueError("is missing") from None
        except OSError as problem:
            raise Unreadable(f"cannot be opened: {problem.strerror}") from None

    def replaced(self) -> bool:
        """Whether the path leads to another directory by now (or to none), or it is `stale`."""
        if self.stale:
            return True
        here = os.fstat(self.handle)
        try:
            there = self.path.stat()
        except OSError:
            return True
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)

    def close(self) -> None:
        os.close(self.handle)

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()


@contextmanager
def opened(folder: "Folder | Path", name: str) -> Iterator[BinaryIO]:
    """Open the plain file `name` (`NAME` or `tokenizer/NAME`) in `folder` for reading.

    Raises ValueError (a sentence) for a link, a hard link, a folder, a device, a pipe or a missing
    file.
    """
    if not isinstance(folder, Folder):
        with Folder(folder) as directory, opened(directory, name) as file:
            yield file
        return
    handles: list[int] = []
    try:
        try:
            *above, last = name.split("/")
            for part in above:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                handles.append(os.open(part, flags, dir_fd=[folder.handle, *handles][-1]))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(last, flags, dir_fd=[folder.handle, *handles][-1])
        except FileNotFoundError:
            raise ValueError("is missing") from None
        except OSError as problem:
            if problem.errno in (40, 20, 62):  # ELOOP, ENOTDIR (a linked folder), ELOOP on BSD
                raise ValueError("is a link, which a snapshot never holds") from None
            raise Unreadable(f"cannot be opened: {problem.strerror}") from None
        handles.append(handle)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a plain file")
        if status.st_nlink != 1:
            raise ValueError("is a hard link, which a snapshot never holds")
        with os.fdopen(handles.pop(), "rb") as file:
            yield file
    finally:
        for handle in reversed(handles):
            os.close(handle)


def size(file: "BinaryIO | InMemory") -> int:
    return len(file.view) if isinstance(file, InMemory) else os.fstat(file.fileno()).st_size


def check(file: "BinaryIO | InMemory", row: dict[str, Any]) -> None:
    """Raise ValueError unless `file` has the declared size and its covered bytes their digest."""
    if size(file) != row["nbytes"]:
        raise ValueError(f"has {size(file)} bytes, the manifest says {row['nbytes']}")
    covered = row.get("covered", row["nbytes"])
    if digest_stream(file, covered) != row["digest"]:
        raise DigestMismatch
    file.seek(0)


def listing(folder: "Folder | Path") -> set[str]:
    """Every entry of a snapshot directory, as `NAME` or `tokenizer/NAME`; folders are not followed."""
    if not isinstance(folder, Folder):
        with Folder(folder) as directory:
            return listing(directory)
    names = set()
    with os.scandir(folder.handle) as entries:
        for entry in entries:
            if entry.name == "tokenizer" and entry.is_dir(follow_symlinks=False):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inside = os.open(entry.name, flags, dir_fd=folder.handle)
                try:
                    names |= {f"tokenizer/{name}" for name in os.listdir(inside)}  # noqa: PTH208
                finally:
                    os.close(inside)
            else:
                names.add(entry.name)
    return names
