"""A payload file cut short by a full disk."""

from pathlib import Path

from harness.fault.base import Fault, edit


class PayloadTruncated(Fault, element=1):
    def disk(self, folder: Path) -> None:
        path, _, _ = edit.stored(folder, "layer.0.segment.0.key")
        path.write_bytes(path.read_bytes()[:-100])
