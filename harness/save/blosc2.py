"""`save=blosc2`: lossless and fast; bytes or bits of one significance side by side, then LZ4 or zstd.

Layout: per tensor a length and a JSON header, then per chunk a length and one Blosc2 buffer (the
library's own format). Chunks are compressed in parallel while earlier ones are written.
`save.codec` (lz4, lz4hc, zstd, blosclz, zlib), `save.level` 0-9, `save.shuffle` (byte, bit, none).
"""

import json
import os
import struct
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from harness.config import SaveConfig, within
from harness.errors import ConfigProblem, suggestion
from harness.save.base import Format, tensor_of
from harness.save.files import Sink, Source
from harness.save.streaming import Stream
from harness.snapshot.digest import tensor_bytes

CHUNK = 1 << 20
_CORES = os.cpu_count() or 1
_LENGTH = struct.Struct("<I")
_CODECS = ("lz4", "lz4hc", "zstd", "blosclz", "zlib")
_CHUNK = struct.Struct("<4B 3I 6B 2B 6B 2B")  # Blosc2's own header, 32 bytes
_FORMAT, _EXTENDED, _ZEROS = (5, 1), 0b101, 0b0001_0000
_STREAMS, _CODEC_IDS = {0, 1, 3, 4}, {0, 1, 2, 4, 5}  # of _CODECS: in the flags, in the pipeline
_FILTER_IDS = {0, 1, 2}  # of _SHUFFLES
_SHUFFLES = {"byte": "SHUFFLE", "bit": "BITSHUFFLE", "none": "NOFILTER"}


class Blosc2(Format):
    extension = "b2"

    def __init__(self, settings: SaveConfig | None = None):
        super().__init__(settings)
        self.options = _options(settings) if settings else {}

    def write(self, sink: Sink, stream: Stream) -> None:
        """A few chunks per core are compressed ahead, across tensors, while others are written."""
        waiting: deque[bytes | Future[bytes]] = deque()

        def put(keep: int) -> None:
            while len(waiting) > keep:
                packed = waiting.popleft()
                packed = packed if isinstance(packed, bytes) else packed.result()
                sink.write(_LENGTH.pack(len(packed)))
                sink.write(packed)

        with ThreadPoolExecutor(_CORES, "blosc2") as pool:
            for entry, (name, tensor) in zip(stream.entries, stream, strict=True):
                header = {"name": name, "dtype": entry.dtype, "shape": entry.shape}
                waiting.append(json.dumps(header, separators=(",", ":")).encode())
                for chunk in _chunks(tensor_bytes(tensor)):
                    waiting.append(
                        pool.submit(_compress, chunk, tensor.element_size(), self.options)
                    )
                    put(4 * _CORES)
                if stream.reuses_buffers:
                    put(0)
            put(0)

    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` for every name in `wanted`; others are skipped without unpacking."""
        left = set(wanted)
        with ThreadPoolExecutor(_CORES, "blosc2") as pool:
            while left and not source.ended():
                header = _header(source)
                name, nbytes = header["name"], _nbytes(header, source)
                data = bytearray(nbytes if name in left else 0)
                waiting: deque[Future[None]] = deque()
                for place in range(0, nbytes, CHUNK):
                    (length,) = _LENGTH.unpack(source.exactly(4))
                    packed = source.exactly(length)
                    if name in left:
                        end = min(place + CHUNK, nbytes)
                        room = memoryview(data)[place:end]
                        waiting.append(pool.submit(_expand, packed, room))
                        if len(waiting) > 4 * _CORES:
                            waiting.popleft().result()
                for job in waiting:
                    job.result()
                if name in left:
                    left.remove(name)
                    yield name, tensor_of(data, wanted[name], header["dtype"], header["shape"])
        if left:
            raise ValueError(f"it does not hold {sorted(left)[0]}")


def _options(settings: Any) -> dict[str, Any]:
    import blosc2

    codec, shuffle, level = settings.codec, settings.shuffle, settings.level
    within("save.level", level, 0, 9)
    if codec not in _CODECS:
        raise ConfigProblem(f"save.codec={codec} is not possible.{suggestion(codec, _CODECS)}")
    if shuffle not in _SHUFFLES:
        near = suggestion(shuffle, list(_SHUFFLES))
        raise ConfigProblem(f"save.shuffle={shuffle} is not possible.{near}")
    chosen = getattr(blosc2.Filter, _SHUFFLES[shuffle])
    return {
        "codec": getattr(blosc2.Codec, codec.upper()),
        "clevel": level,
        "filters": [chosen],
        "filters_meta": [0],
        "nthreads": 1,
    }


def _compress(chunk: memoryview, size: int, options: dict[str, Any]) -> bytes:
    import blosc2

    return blosc2.compress2(chunk, typesize=size, **options)


def _expand(packed: bytes, room: memoryview) -> None:
    """Unpack into `room`. Raises ValueError unless the buffer is whole and fills it exactly."""
    _check_chunk(packed, len(room))
    import blosc2

    try:
        blosc2.decompress2(packed, dst=room, nthreads=1)
    except (RuntimeError, TypeError) as problem:
        raise ValueError(f"a chunk cannot be unpacked: {problem}") from None


def _check_chunk(packed: bytes, nbytes: int) -> None:
    """Raise ValueError for a chunk that this format never writes, before the library sees it.

    The library looks a codec or filter that it does not have up as a plug-in: it starts a Python
    that imports the module of that name, from the working directory first.
    """
    if len(packed) < _CHUNK.size:
        raise ValueError("a chunk is shorter than its header")
    version, lz, flags, _, declared, _, stored, *rest = _CHUNK.unpack_from(packed)
    filters, (codec, *metas, reserved, special) = rest[:6], rest[6:]
    if (version, lz) != _FORMAT or flags & _EXTENDED != _EXTENDED or reserved:
        raise ValueError("a chunk has a layout that is never written here")
    plain = flags >> 5 in _STREAMS and codec in _CODEC_IDS and _FILTER_IDS.issuperset(filters)
    if not plain or any(metas):
        raise ValueError("a chunk names a codec or filter that is not on the allow-list")
    if special not in (0, _ZEROS):
        raise ValueError("a chunk asks for a dictionary or a fill, which is never written here")
    if (declared, stored) != (nbytes, len(packed)):
        raise ValueError("a chunk does not have the declared size")


def _chunks(data: memoryview) -> Iterator[memoryview]:
    for place in range(0, len(data), CHUNK):
        yield data[place : place + CHUNK]


def _header(source: Source) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(source.exactly(4))
    if length > 4096:
        raise ValueError("a tensor's header is too long")
    header = json.loads(source.exactly(length))
    match header:
        case {"name": str(), "dtype": str(), "shape": [*sizes]} if len(sizes) <= 8 and all(
            type(s) is int and 0 <= s < 1 << 40 for s in sizes
        ):
            return header
    raise ValueError("a tensor's header is not as it should be")


def _nbytes(header: dict[str, Any], source: Source) -> int:
    dtype = getattr(torch, header["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"dtype {header['dtype'][:40]} is unknown")
    nbytes = dtype.itemsize
    for size in header["shape"]:
        nbytes *= size
    if nbytes > source.tensor_bytes:
        raise ValueError("it unpacks to more than the manifest declares")
    return nbytes
