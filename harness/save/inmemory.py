"""The contents of a file in this process's own memory: nobody else can change them, and they have no
name on any disk."""

import io
import mmap
from typing import Any, BinaryIO

BLOCK = 8 << 20


class InMemory:
    """`nbytes` bytes to be filled through `view`, then read like a file. Page aligned, so tensors may
    lie in it. Raises MemoryError when there is no room for them."""

    def __init__(self, nbytes: int):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared memory comes at half the speed
        try:
            self.room = mmap.mmap(-1, max(nbytes, 1), flags=flags)
        except OSError:
            raise MemoryError from None
        self.view = memoryview(self.room)[:nbytes]
        self._place = 0

    @classmethod
    def of(cls, file: BinaryIO, nbytes: int) -> "InMemory":
        """The first `nbytes` bytes of `file`; fewer, and the rest is zero (no digest fits then)."""
        contents, filled = cls(nbytes), 0
        file.seek(0)
        while filled < nbytes and (count := file.readinto(contents.view[filled : filled + BLOCK])):  # type: ignore[attr-defined]
            filled += count
        return contents

    def read(self, count: int = -1) -> bytes:
        stop = len(self.view) if count < 0 else min(self._place + count, len(self.view))
        data = bytes(self.view[self._place : stop])
        self._place += len(data)
        return data

    def readinto(self, room: Any) -> int:
        data = self.view[self._place : self._place + len(room)]
        room[: len(data)] = data
        self._place += len(data)
        return len(data)

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(0, place + (0, self._place, len(self.view))[whence])
        return self._place

    def seekable(self) -> bool:
        return True
