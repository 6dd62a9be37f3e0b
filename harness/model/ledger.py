"""Digests of a model's weights, kept between processes, so that a second load reads no weights to
know what they are.

What was loaded follows from the bytes of its files, from the config and code beside them, from the
dtype asked for and from the libraries that read them. All of that is the key; the files count by
device, inode, size and both times of change, which nobody but root sets back. An entry serves that
very load only: a tensor written to since is digested anew. `HARNESS_CACHE=off` keeps and reads nothing.
"""

import json
import os
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from harness import machine
from harness.model.identity import buffers
from harness.snapshot.digest import digest_document

SCHEME = 1
LARGE = 32 << 20  # bytes of weights; fewer are digested in the time that asking takes
SETTLED_NS = 2_000_000_000  # a file changed later than this before its load may change unnoticed
KEPT = 64  # entries; the oldest go
WEIGHTS = (".safetensors", ".bin")
BESIDE = (".json", ".py")
LIBRARIES = ("torch", "transformers", "safetensors")


@dataclass(frozen=True)
class Ledger:
    """The entry of one load. place: the folder that was loaded from, files: how they lay there."""

    place: Path
    dtype: str
    files: tuple[tuple[Any, ...], ...]

    @classmethod
    def before(cls, place: Path, dtype: torch.dtype) -> "Ledger | None":
        """The entry for the weights at `place`, asked before they are loaded. None where none can be
        trusted: little to read, files just changed or on a shared disk, or `HARNESS_CACHE=off`."""
        if os.environ.get("HARNESS_CACHE", "").lower() in ("off", "0", "no", "false"):
            return None
        try:
            files = stamps(place)
            shared = machine.shared(place.stat().st_dev)
        except OSError:
            return None
        large = sum(f[3] for f in files if str(f[0]).endswith(WEIGHTS)) >= LARGE
        latest = max((max(f[4:]) for f in files), default=0)
        if shared or not large or time.time_ns() - latest < SETTLED_NS or _elsewhere(place):
            return None
        return cls(place, str(dtype).removeprefix("torch."), files)

    @property
    def unchanged(self) -> bool:
        """Whether the files lie there as before the load."""
        try:
            return stamps(self.place) == self.files
        except OSError:
            return False

    @property
    def key(self) -> dict[str, Any]:
        """Everything that what was loaded follows from."""
        versions = {name: metadata.version(name) for name in LIBRARIES}
        return {
            "scheme": SCHEME,
            "place": str(self.place),
            "dtype": self.dtype,
            "files": [list(file) for file in self.files],
            "libraries": versions,
        }

    def read(self, names: set[str]) -> dict[str, str]:
        """Digest by parameter name, for exactly `names`; empty where none are kept, or where the entry
        is not this load's, is damaged or could have been written by somebody else."""
        try:
            with self._path.open() as file:
                if not _private(os.fstat(file.fileno())):
                    return {}
                entry = json.load(file)
            key, digests = entry["key"], entry["digests"]
            sound = (
                key == self.key and set(digests) == names and all(map(_is_digest, digests.values()))
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
        return digests if sound and self.unchanged else {}

    def write(self, digests: dict[str, str]) -> None:
        """Keep `digests`, unless the files changed meanwhile. A cache that cannot be written is none."""
        if not self.unchanged:
            return
        with suppress(OSError):
            folder = self._path.parent
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=folder)  # mode 0600
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump({"key": self.key, "digests": digests}, file)
                Path(temporary).replace(self._path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            _forget_oldest(folder)

    @property
    def _path(self) -> Path:
        """One entry per folder and dtype: a later load of the same replaces it."""
        base = os.environ.get("XDG_CACHE_HOME", "")
        root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
        name = digest_document([str(self.place), self.dtype])[:32]
        return root / "harness" / "weights" / f"{name}.json"


def stamps(place: Path) -> tuple[tuple[Any, ...], ...]:
    """Name, device, inode, size, time of modification and of change (nanoseconds) of every file that
    loading `place` (a folder, or one file) may read; links are followed to what they name."""
    rows = []
    for path in sorted(place.iterdir()) if place.is_dir() else [place]:
        if path == place or path.suffix in (*WEIGHTS, *BESIDE):
            s = path.stat()
            rows.append((path.name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns))
    return tuple(rows)


def _elsewhere(place: Path) -> bool:
    """Whether some weights may lie outside of `place`: an adapter's base model, shards in folders."""
    if (place / "adapter_config.json").exists():
        return True
    try:
        shards = [json.loads(p.read_text())["weight_map"] for p in place.glob("*.index.json")]
        return any("/" in file for shard in shards for file in shard.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return True


def written(model: Any) -> tuple[Any, ...]:
    """How the parameters, and the buffers saved with them, lie in memory, how often each was written
    to, and a sample of each: writes through `.data`, which torch does not count, show there when they
    are more than a few numbers."""
    return tuple(map(laid, (*model.parameters(), *buffers(model).values())))


def laid(tensor: torch.Tensor) -> tuple[int, int, bytes]:
    """How one tensor lies, how often it was written to, and a sample of it."""
    return tensor.data_ptr(), tensor._version, _sample(tensor)


def _sample(tensor: torch.Tensor) -> bytes:
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        return b""
    flat = tensor.detach().view(-1)
    length, pieces = 16, 8
    if len(flat) <= length * pieces:
        return flat.view(torch.uint8).numpy().tobytes()
    step = (len(flat) - length) // (pieces - 1)
    rows = flat.as_strided((pieces, length), (step, 1))
    return rows.contiguous().view(torch.uint8).numpy().tobytes()


def _private(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _forget_oldest(folder: Path) -> None:
    entries = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in entries[:-KEPT]:
        path.unlink(missing_ok=True)
