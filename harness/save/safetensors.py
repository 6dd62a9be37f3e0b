"""`save=safetensors`: restored by memory map, so a past that is only read is never copied.

Written tensor by tensor (the library's own writer holds the whole file in memory), read where it
lies, on disk or decrypted in memory. Layout: 8 bytes header length, JSON header, then the raw tensors, widest dtype first.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any

import torch

from harness.save.base import Format
from harness.save.files import Sink, Source
from harness.save.streaming import Stream
from harness.snapshot.digest import tensor_bytes

ALIGN = 64
HEADER = 64 << 20  # bytes of a header at most
CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


class Safetensors(Format):
    extension = "safetensors"
    mapped = True

    def write(self, sink: Sink, stream: Stream) -> None:
        """Only the header is digested as a file; the tensors have digests of their own."""
        stream.entries.sort(key=lambda e: -e.parts[0].element_size())  # keeps every tensor aligned
        header, offset = {}, 0
        for entry in stream.entries:
            end = offset + entry.nbytes
            code = CODES[entry.dtype]
            header[entry.name] = {
                "dtype": code,
                "shape": entry.shape,
                "data_offsets": [offset, end],
            }
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % ALIGN)
        sink.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in stream:
            sink.write_raw(tensor_bytes(tensor))

    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` for every name in `wanted`, where they lie in the file."""
        header, start = _header(source)
        for name, row in wanted.items():
            match header.get(name):
                case {"dtype": dtype, "shape": shape, "data_offsets": [int(begin), int(end)]}:
                    if [dtype, shape, end - begin] != [
                        CODES[row["dtype"]],
                        row["shape"],
                        row["nbytes"],
                    ]:
                        raise ValueError(f"{name} is not as the manifest says")
                    if begin < 0:
                        raise ValueError(f"{name} begins before the tensors do")
                    yield name, source.tensor(row, start + begin)
                case _:
                    raise ValueError(f"it does not hold {name}")


def _header(source: Source) -> tuple[dict[str, Any], int]:
    """The JSON header and where it ends. Raises ValueError for none."""
    (length,) = struct.unpack("<Q", source.exactly(8))
    if length > min(HEADER, source.nbytes - 8):
        raise ValueError("its header is longer than any that is written for a snapshot")
    try:
        header = json.loads(source.exactly(length))
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header, 8 + length
