"""`save=safetensors`: restored by memory map, so a past that is only read is never copied.

Written tensor by tensor (the library's own writer holds the whole file in memory), read through
the library. Layout: 8 bytes header length, JSON header, then the raw tensors in order.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from harness.snapshot.digest import tensor_bytes

EXTENSION = "safetensors"
ALIGN = 64
CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def write(path: Path, tensors: list[tuple[str, torch.Tensor]], settings: Any) -> None:
    """Write `tensors` under their names. A view is written alone, without its hidden storage."""
    header, offset = {}, 0
    for name, tensor in tensors:
        code = CODES[str(tensor.dtype).removeprefix("torch.")]
        end = offset + tensor.nbytes
        header[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGN)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in tensors:
            file.write(tensor_bytes(tensor))


def read(path: Path, rows: list[dict[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield `(name, tensor)` for the manifest's `rows` of this file, memory mapped on CPU.

    Raises ValueError when the file does not hold exactly these tensors.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            if set(file.keys()) != {r["name"] for r in rows}:
                raise ValueError("it does not hold the tensors that the manifest lists")
            for row in rows:
                yield row["name"], file.get_tensor(row["name"])
    except SafetensorError as problem:
        raise ValueError(str(problem)) from None
