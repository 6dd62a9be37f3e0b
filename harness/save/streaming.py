"""Tensors on their way to a file: one at a time, digested in the background while a format writes.

Peak memory is one tensor (two for CUDA, in pinned buffers); nothing is copied on CPU unless several
segments are being merged.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import torch

from harness.progress import counting
from harness.snapshot.digest import digest_tensor


@dataclass(frozen=True)
class Entry:
    """A tensor to be stored as `name`; `parts` are joined along `dim` when it is written."""

    name: str
    parts: tuple[torch.Tensor, ...]
    dim: int = 0

    @property
    def dtype(self) -> str:
        return str(self.parts[0].dtype).removeprefix("torch.")

    @property
    def shape(self) -> list[int]:
        shape = list(self.parts[0].shape)
        if len(self.parts) > 1:
            shape[self.dim] = sum(p.shape[self.dim] for p in self.parts)
        return shape

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.parts[0].element_size()


class Stream:
    """Iterate once over `(name, tensor)`, tensors contiguous on CPU; then `digests` is complete.

    entries: an ordered list, also for formats that need every size before the first byte.
    """

    def __init__(self, entries: list[Entry]):
        self.entries = entries
        self.digests: dict[str, str] = {}
        self._staging = _Staging(entries)

    @property
    def reuses_buffers(self) -> bool:
        """Whether a tensor is overwritten once the next one is asked for (CUDA)."""
        return self._staging.reuses_buffers

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        total = sum(entry.nbytes for entry in self.entries)
        with counting("write", total) as count, ThreadPoolExecutor(1, "digest") as background:
            waiting: tuple[str, Future[str]] | None = None
            for entry, tensor in self._staging:
                digest = background.submit(digest_tensor, tensor, 1)
                yield entry.name, tensor
                count(entry.nbytes)
                if waiting:
                    self.digests[waiting[0]] = waiting[1].result()
                waiting = entry.name, digest
                if self._staging.reuses_buffers:
                    digest.result()
            if waiting:
                self.digests[waiting[0]] = waiting[1].result()


class _Staging:
    """Host copies of the entries. CUDA tensors pass through two pinned buffers, the next copy
    running while the current one is digested and written."""

    def __init__(self, entries: list[Entry]):
        self.entries = entries
        self.reuses_buffers = any(p.is_cuda for e in entries for p in e.parts)

    def __iter__(self) -> Iterator[tuple[Entry, torch.Tensor]]:
        if not self.reuses_buffers:
            for entry in self.entries:
                yield entry, joined(entry).contiguous()
            return
        largest = max(e.nbytes for e in self.entries)
        buffers = [torch.empty(largest, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        ahead = self._copy(self.entries[0], buffers[0], stream)
        for number, entry in enumerate(self.entries):
            tensor, ready, _held = ahead
            ready.synchronize()
            if number + 1 < len(self.entries):
                ahead = self._copy(self.entries[number + 1], buffers[(number + 1) % 2], stream)
            yield entry, tensor

    @staticmethod
    def _copy(entry: Entry, buffer: torch.Tensor, stream: "torch.cuda.Stream") -> tuple:
        with torch.cuda.stream(stream):
            source = joined(entry)
            host = buffer[: entry.nbytes].view(source.dtype).view(source.shape)
            host.copy_(source, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record(stream)
        return host, ready, source


def joined(entry: Entry) -> torch.Tensor:
    """The entry as one tensor; no copy when it has one part."""
    return entry.parts[0].detach() if len(entry.parts) == 1 else torch.cat(entry.parts, entry.dim)
