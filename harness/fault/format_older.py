"""A snapshot of an older K/V format."""

from pathlib import Path

from harness.fault.base import Fault, edit


class FormatOlder(Fault, element=11):
    why = "read by today's rules it may mean something else"

    def disk(self, folder: Path) -> None:
        edit.manifest(folder, lambda m: m["documents"]["kv_format"].update(version=0))
