"""`save=gzip`: the pickle format in a gzip stream (level 9 unless `save.level` says otherwise)."""

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any

import torch

from harness.config import SaveConfig, within
from harness.save.files import Sink, Source
from harness.save.pickle import OVERHEAD, Pickle
from harness.save.streaming import Stream

PIECE = 1 << 16  # bytes that are unpacked at a time


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
        """As pickle, reading at most the declared number of bytes out of one gzip member, behind which the file
        ends."""
        member = _Member(source)
        file = _Bounded(io.BufferedReader(member, PIECE), source.tensor_bytes)
        yield from super().read(file, wanted)
        if member.stream.unused_data or not source.ended():
            raise ValueError("it holds more than one gzip member")


class _Member(io.RawIOBase):
    """The contents of the first gzip member. Raises ValueError for a stream that is not sound."""

    def __init__(self, source: Source):
        self.source, self.stream = source, zlib.decompressobj(zlib.MAX_WBITS | 16)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        piece = b""
        try:
            while not piece and not self.stream.eof:
                packed = self.stream.unconsumed_tail or self.source.read(PIECE)
                piece = self.stream.decompress(packed, len(room))
                if not piece and not packed:
                    raise ValueError("it ends in the middle of its gzip stream")
        except zlib.error as problem:
            raise ValueError(f"it is no sound gzip stream: {problem}") from None
        room[: len(piece)] = piece
        return len(piece)


class _Bounded:
    """At most the declared bytes, so that a bomb stops where the manifest does."""

    def __init__(self, file: io.BufferedReader, tensor_bytes: int):
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
