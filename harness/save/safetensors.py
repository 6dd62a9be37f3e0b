"""`save=safetensors`: restored by memory map, so a past that is only read is never copied.

Written tensor by tensor (the library's own writer holds the whole file in memory), read through
the library. Layout: 8 bytes header length, JSON header, then the raw tensors, widest dtype first.
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
        """`(name, tensor)` for every name in `wanted`, memory mapped on CPU."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(source.path, framework="pt") as file:
                if missing := wanted.keys() - set(file.keys()):
                    raise ValueError(f"it does not hold {sorted(missing)[0]}")
                for name in wanted:
                    yield name, file.get_tensor(name)
        except SafetensorError as problem:
            raise ValueError(str(problem)) from None
