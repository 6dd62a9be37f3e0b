"""`save=torch`: one `torch.save` file. Anybody's `torch.load` reads it; we read it ourselves.

The library's loader builds more than tensors, and allocates what a pickle asks for, so it is never
given a file: the zip's table is read here, the pickle in it as data (`torch_pickle.py`), and a tensor
is a view of the mapped file where its record lies.
"""

import struct
import zipfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from harness.save.base import Format
from harness.save.files import Sink, Source
from harness.save.streaming import Stream, joined
from harness.save.torch_pickle import tensors

PICKLE = 64 << 20  # bytes of data.pkl at most; it holds names and shapes only


class Torch(Format):
    extension = "pt"
    mapped = True

    def write(self, sink: Sink, stream: Stream) -> None:
        """A dict of tensors, digested in the background while the library writes them one by one."""
        with ThreadPoolExecutor(1, "digest") as background:
            digested = background.submit(lambda: deque(stream, maxlen=0))
            torch.save({e.name: _alone(joined(e)) for e in stream.entries}, sink)  # type: ignore[arg-type]  # it writes
            digested.result()

    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` for every name in `wanted`, mapped. Raises ValueError for anything but plain
        tensors."""
        archive = _records(source)
        stem = _stem(archive)
        described = tensors(
            _bytes(source, archive, f"{stem}/data.pkl", PICKLE), 64 + 64 * _many(archive)
        )
        for name, row in wanted.items():
            stored = described.get(name)
            if stored is None:
                raise ValueError(f"it does not hold {name} as a plain tensor")
            shape = tuple(row["shape"])
            if stored.dtype not in (None, row["dtype"]) or stored.shape != shape or stored.offset:
                raise ValueError(f"{name} is not as the manifest says")
            start, nbytes = _place(source, archive, f"{stem}/data/{stored.storage}")
            if nbytes != row["nbytes"]:
                raise ValueError(f"{name} is not laid out plainly")
            yield name, source.tensor(row, start)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Without the hidden rest of a larger storage, which `torch.save` would write too."""
    tensor = tensor.contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _records(source: Source) -> dict[str, zipfile.ZipInfo]:
    """The records of the archive by name: stored plainly, each once, no more than a file has."""
    try:
        with zipfile.ZipFile(source.file) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as problem:
        raise ValueError(f"it is no zip archive: {problem}") from None
    if any(r.compress_type != zipfile.ZIP_STORED or r.flag_bits & 1 for r in records):
        raise ValueError("it holds compressed records, which torch.save never writes")
    if sum(r.file_size for r in records) > source.nbytes:
        raise ValueError("its records claim more bytes than the file has")
    if any(r.filename.count("/") > 2 or ".." in r.filename for r in records):
        raise ValueError("it holds a record with a strange name")
    named = {r.filename: r for r in records}
    if len(named) != len(records):
        raise ValueError("it holds two records of one name")
    return named


def _stem(archive: dict[str, zipfile.ZipInfo]) -> str:
    stems = [name.removesuffix("/data.pkl") for name in archive if name.endswith("/data.pkl")]
    if len(stems) != 1:
        raise ValueError("it holds no data.pkl")
    return stems[0]


def _many(archive: dict[str, zipfile.ZipInfo]) -> int:
    return sum("/data/" in name for name in archive)


def _place(source: Source, archive: dict[str, zipfile.ZipInfo], name: str) -> tuple[int, int]:
    """`(offset in the file, size)` of a record's bytes."""
    if name not in archive:
        raise ValueError(f"it has no record {name[:80]}")
    info = archive[name]
    header = source.at(info.header_offset, 30)
    if len(header) != 30 or header[:4] != b"PK\x03\x04":
        raise ValueError(f"its record {name[:80]} has no header")
    start = info.header_offset + 30 + sum(struct.unpack_from("<2H", header, 26))
    if info.compress_size != info.file_size or start + info.file_size > source.nbytes:
        raise ValueError(f"its record {name[:80]} ends past the file")
    return start, info.file_size


def _bytes(source: Source, archive: dict[str, zipfile.ZipInfo], name: str, limit: int) -> bytes:
    start, nbytes = _place(source, archive, name)
    if nbytes > limit:
        raise ValueError(
            f"its {name[:80]} is larger than any that torch.save writes for a snapshot"
        )
    return source.at(start, nbytes)
