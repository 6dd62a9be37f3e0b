"""One bit flipped in a stored key: bits 0 to 15 of a bfloat16 value (of a wider one: its upper half)."""

from pathlib import Path

from harness.config import FaultConfig, within
from harness.fault.base import Fault, edit


class BitFlip(Fault, element=1):
    why = "below the noise floor now; the damage is permanent, and the next flip may be in an exponent"

    def __init__(self, bit: int = 14, name: str = "bit_flip"):
        self.bit, self.name = bit, name

    def configured(self, settings: FaultConfig) -> Fault:
        within("fault.bit", settings.bit, 0, 15)
        return BitFlip(settings.bit, f"bit_flip bit={settings.bit}")

    def rows(self) -> tuple[Fault, ...]:
        return tuple(BitFlip(bit, f"bit_flip bit={bit}") for bit in (0, 6, 7, 10, 14, 15))

    def disk(self, folder: Path) -> None:
        path, at, _ = edit.stored(folder, "layer.0.segment.0.key")
        at += edit.width(folder, "layer.0.segment.0.key") - 2 + self.bit // 8
        edit.overwrite(path, at, bytes([path.read_bytes()[at] ^ 1 << self.bit % 8]))
