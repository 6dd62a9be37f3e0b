"""`save=gzip`: the pickle format in a gzip stream (level 9 unless `save.level` says otherwise)."""

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

import torch

from harness.config import SaveConfig, within
from harness.save.files import Sink, Source
from harness.save.pickle import OVERHEAD, Pickle
from harness.save.streaming import Stream


class Gzip(Pickle):
    extension = "pkl.gz"

    def __init__(self, settings: SaveConfig | None = None):
        super().__init__(settings)
        if settings:
            within("save.level", settings.level, 0, 9)

    def write(self, sink: Sink, stream: Stream) -> None:
        """Deterministic: no name and no time in the gzip header."""
        assert self.settings is not None  # they are there for whoever writes
        with gzip.GzipFile(
            filename="", mode="wb", compresslevel=self.settings.level, fileobj=sink, mtime=0
        ) as file:
            super().write(file, stream)

    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """As pickle, reading at most the declared number of bytes out of the stream."""
        with gzip.GzipFile(fileobj=_Raw(source), mode="rb") as file:
            try:
                yield from super().read(_Inflated(file, source.tensor_bytes), wanted)
            except zlib.error as problem:
                raise ValueError(f"it is no sound gzip stream: {problem}") from None


class _Raw:
    """What GzipFile asks of a file, bounded by the size of ours."""

    def __init__(self, source: Source):
        self.source, self.mode = source, "rb"

    def read(self, count: int = -1) -> bytes:
        return self.source.read(self.source.nbytes if count < 0 else count)

    def seek(self, *place: int) -> int:
        return self.source.file.seek(*place)


class _Inflated:
    """At most the declared bytes, so that a bomb stops where the manifest does."""

    def __init__(self, file: gzip.GzipFile, tensor_bytes: int):
        self.file = file
        self.left = tensor_bytes + OVERHEAD

    def read(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("it unpacks to more than the manifest declares")
        data = self.file.read(count)
        self.left -= len(data)
        return data

    def ended(self) -> bool:
        return not self.file.peek(1)
