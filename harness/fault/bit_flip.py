"""One bit flipped in a stored key: bits 0 to 15 of a bfloat16 value (of a wider one: its upper half)."""

from pathlib import Path

from harness.fault import edit
from harness.fault.base import Fault


class BitFlip(Fault):
    element = 1
    why = "below the noise floor now; the damage is permanent, and the next flip may be in an exponent"

    def __init__(self, bit: int):
        self.bit = bit
        self.name = f"bit_flip_{bit:02d}"

    def disk(self, folder: Path) -> None:
        path, offset, _ = edit.stored(folder, "layer.0.segment.0.key")
        dtype = edit.dtype_of(folder, "layer.0.segment.0.key")
        width = {"float64": 8, "float32": 4}.get(dtype, 2)
        at = offset + width - 2 + self.bit // 8
        byte = path.read_bytes()[at]
        edit.overwrite(path, at, bytes([byte ^ 1 << self.bit % 8]))


FAULTS = tuple(BitFlip(bit) for bit in range(16))
