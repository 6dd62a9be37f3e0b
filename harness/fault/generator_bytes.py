"""The stored generator state damaged on disk."""

from pathlib import Path

from harness.fault.base import Fault, edit


class GeneratorBytes(Fault, element=13, bed="sampled"):
    why = "the distribution is the same; what is drawn from it is not"

    def disk(self, folder: Path) -> None:
        path, offset, _ = edit.stored(folder, "rng")
        edit.overwrite(path, offset + 24, bytes(range(64)))
