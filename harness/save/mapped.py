"""Files that restored tensors are mapped from: whoever edits one in place changes a verified State.

So it is remembered how each lay there, and looked at again before anything is built on it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.errors import SnapshotInvalid

_REMEMBERED = 256
_files: dict[str, list["Mapped"]] = {}  # by snapshot id


@dataclass(frozen=True)
class Mapped:
    """A file as it was before it was verified. stamp: device, inode, size, times of change."""

    path: Path
    stamp: tuple[int, ...]

    @classmethod
    def of(cls, file: BinaryIO, path: Path) -> "Mapped":
        return cls(path, _stamp(os.fstat(file.fileno())))

    def changed(self) -> bool:
        """Whether the very file has been written to. One that is gone or replaced has not been: what
        was mapped from it stays as it was."""
        try:
            now = _stamp(self.path.lstat())
        except OSError:
            return False
        return now[:2] == self.stamp[:2] and now != self.stamp


def remember(snapshot: str, files: list[Mapped]) -> None:
    _files.pop(snapshot, None)
    _files[snapshot] = files
    if len(_files) > _REMEMBERED:
        del _files[next(iter(_files))]


def check(snapshot: str | None) -> None:
    """Raise SnapshotInvalid when a file that the State of `snapshot` is mapped from was edited after
    it was verified."""
    for file in _files.get(snapshot or "", []):
        if file.changed():
            raise SnapshotInvalid(
                str(file.path.parent),
                [
                    f"{file.path.name} was written to after it was verified, and what was restored is "
                    "mapped from it. Load it again; restore.map=false reads it into memory instead"
                ],
            )


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
