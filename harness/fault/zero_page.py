"""A page of zeros where the disk lost a write."""

from pathlib import Path

from harness.fault.base import Fault, edit


class ZeroPage(Fault, element=1, field="transfer"):
    def disk(self, folder: Path) -> None:
        path, offset, nbytes = edit.stored(folder, "layer.0.segment.0.value")
        edit.overwrite(path, offset, bytes(min(nbytes, 4096)))
