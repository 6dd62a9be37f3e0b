"""What other programs saved, read without running anything of it: an mlx-lm prompt cache, a slot file of
llama.cpp, a `torch.save`d DynamicCache. Each says which of the 13 elements it holds."""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

from harness.engine.saved import dynamic, mlx, slot
from harness.engine.saved.base import Saved as Saved
from harness.engine.saved.base import halves as halves
from harness.errors import InputProblem

BROKEN = (ValueError, KeyError, TypeError, AttributeError, RuntimeError, IndexError, OSError,
          struct.error, pickle.UnpicklingError)  # fmt: skip


def read(path: Path) -> Saved:
    """The file at `path`, by its first bytes. Raises InputProblem when it is none of the three, or broken."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as problem:
        raise InputProblem(f"snapshot={path} cannot be read: {problem.strerror}.") from None
    reader = _reader(start)
    if reader is None:
        raise InputProblem(
            f"snapshot={path} is no directory of ours, and none of: an mlx-lm prompt cache "
            "(.safetensors), a slot file of llama.cpp, a torch.save'd DynamicCache."
        )
    try:
        return reader(path)
    except BROKEN as problem:
        said = str(problem).splitlines()[0][:200] if str(problem) else type(problem).__name__
        raise InputProblem(f"snapshot={path} cannot be read: {said}") from None


def _reader(start: bytes) -> Callable[[Path], Saved] | None:
    if start[:4] == slot.MAGIC:
        return slot.read
    if start[:2] == b"PK":
        return dynamic.read
    return mlx.read if start[8:9] == b"{" else None
