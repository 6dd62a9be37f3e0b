"""A snapshot of a newer format than this reader knows."""

from pathlib import Path

from harness.fault.base import Fault, edit
from harness.snapshot import manifest as manifests


class FormatNewer(Fault, element=11):
    why = "read by today's rules it may mean something else"

    def disk(self, folder: Path) -> None:
        edit.manifest(folder, lambda m: m.update(format_version=manifests.FORMAT_VERSION + 1))
