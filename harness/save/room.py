"""Is there room? Asked before a save writes anything; a long save is announced with an estimate."""

import errno
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import machine
from harness.errors import InputProblem
from harness.save.base import Format
from harness.save.streaming import Entry, Stream, joined

LONG = 256 << 20  # bytes of a save that is worth an announcement
SAMPLE = 8 << 20


def check(
    target: Path,
    form: Format,
    entries: list[Entry],
    others: int,
    tell: Callable[[str], None] = lambda said: None,
) -> None:
    """Raise InputProblem when `entries` and `others` more bytes cannot fit at `target`.

    The bytes follow from the shapes. Only where they decide something (too much for the disk, or a
    long save) a sample is packed, to see what the format makes of them. tell: hears about a long one.
    """
    raw = sum(e.nbytes for e in entries)
    if not form.on_disk:
        _check_memory(raw)
        return
    free = machine.free_disk(target)
    if raw + others <= free and raw <= LONG:
        return
    share, seconds = _packed(form, entries)
    stored = int(raw * share) + others
    if stored > free and not machine.has_disk(target):
        raise InputProblem(
            f"no folder can be created at {target}: no disk stands behind it. Choose another (out=DIR, "
            "runs_dir=DIR). Nothing was written."
        )
    if stored > free:
        raise InputProblem(
            f"a snapshot at {target} needs {machine.human(stored)}, {machine.human(free)} are free "
            "there. Nothing was written. Free some space, choose another disk (out=DIR, "
            "runs_dir=DIR), prune (prune=keep_last prune.ratio=0.5) or compress (save=blosc2)."
        ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if raw > LONG:
        seconds = max(seconds * raw, _write_seconds(target) * stored)
        tell(f"{machine.human(stored)}, about {max(round(seconds), 1)} s")


def _check_memory(raw: int) -> None:
    free = machine.free_memory()
    if free is not None and raw > free:
        raise InputProblem(
            f"save=memory needs {machine.human(raw)} more memory, {machine.human(free)} are free. "
            "Choose a format on disk (save=safetensors) or prune first."
        )


class _Counter:
    """A sink that keeps nothing but the number of bytes."""

    nbytes = 0

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self.nbytes += count
        return count

    write_raw = write

    def flush(self) -> None:
        """Nothing is buffered here."""


def _packed(form: Format, entries: list[Entry]) -> tuple[float, float]:
    """Bytes stored and seconds spent per byte, on the first part of the largest tensor."""
    largest = max(entries, key=lambda e: e.nbytes)
    part = largest.parts[0].detach()
    sample = joined(Entry("", (part,))).flatten()[: max(SAMPLE // part.element_size(), 1)].cpu()
    sink, start = _Counter(), time.perf_counter()
    form.write(sink, Stream([Entry("sample", (sample.clone(),))]))
    seconds, raw = time.perf_counter() - start, max(sample.nbytes, 1)
    return min(sink.nbytes / raw, 1.0), seconds / raw


def _write_seconds(target: Path) -> float:
    """Seconds per byte that reaches this disk, measured with one small file."""
    place = target.absolute()
    while not place.exists():
        place = place.parent
    start = time.perf_counter()
    with tempfile.TemporaryFile(dir=place) as file:
        file.write(os.urandom(SAMPLE))
        file.flush()
        os.fsync(file.fileno())
    return (time.perf_counter() - start) / SAMPLE
