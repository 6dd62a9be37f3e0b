"""What other programs saved, read without running anything of it: an mlx-lm prompt cache, a slot file of
llama.cpp, a `torch.save`d DynamicCache. Each says which of the 13 elements it holds."""

from collections.abc import Callable
from pathlib import Path

from harness.engine.saved import dynamic, mlx, slot
from harness.engine.saved.base import Saved as Saved
from harness.engine.saved.base import halves as halves
from harness.errors import InputProblem
from harness.foreign import opened, opening


def read(path: Path) -> Saved:
    """The file at `path`, by its first bytes. Raises InputProblem when it is none of the three, or broken."""
    with opening(f"snapshot={path}"):
        with opened(path) as file:
            reader = _reader(file.read(16))
        if reader is None:
            raise InputProblem(
                f"snapshot={path} is no directory of ours, and none of: an mlx-lm prompt cache "
                "(.safetensors), a slot file of llama.cpp, a torch.save'd DynamicCache."
            )
        return reader(path)


def _reader(start: bytes) -> Callable[[Path], Saved] | None:
    if start[:4] == slot.MAGIC:
        return slot.read
    if start[:2] == b"PK":
        return dynamic.read
    return mlx.read if start[8:9] == b"{" else None
