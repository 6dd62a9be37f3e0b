"""One payload file: named tensors in, the same tensors out. A variant writes and reads that file;
layout, manifest, digests, lineage, encryption and atomicity are the store's.

The bytes a reader meets may be hostile: their digest is checked first, but whoever wrote them wrote
the digest too. So a reader trusts no length or dtype in the file beyond what the manifest's row of a
tensor declares (`tensor_of` checks that), unpacks into no more than that, and never unpickles.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from harness.config import SaveConfig
from harness.save.files import Source
from harness.save.streaming import Stream


class Format(ABC):
    """settings: an option of `save` for writing, or None for reading: what a file needs to be read
    stands in the file. Construction checks the settings and raises ConfigProblem.

    extension: of payload files. mapped: tensors that are read lie where the file lies, in no new
    memory. on_disk: the payload is in the file (and not in this process).
    """

    extension: ClassVar[str]
    mapped: ClassVar[bool] = False
    on_disk: ClassVar[bool] = True

    def __init__(self, settings: SaveConfig | None = None):
        self.settings = settings

    @abstractmethod
    def write(self, sink: Any, stream: Stream) -> None:
        """Write every `(name, tensor)` of `stream` (contiguous, on CPU) with `sink.write(bytes)`.
        `stream.entries` names all of them beforehand, with `dtype`, `shape` and `nbytes`. Mutates no
        tensor."""

    @abstractmethod
    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` for every name in `wanted`, which maps it to its row of the manifest
        (`dtype`, `shape`, `nbytes`). Raises ValueError, a sentence, for a file that is not sound."""


def tensor_of(data: Any, row: dict[str, Any], dtype: Any = None, shape: Any = None) -> torch.Tensor:
    """A writable CPU tensor over a copy of `data`, as `row` declares it. dtype, shape: what the file
    says, where it says so. Raises ValueError unless all of it agrees with the row."""
    dtype, shape = dtype or row["dtype"], row["shape"] if shape is None else list(shape)
    if (dtype, shape, len(data)) != (row["dtype"], row["shape"], row["nbytes"]):
        raise ValueError(f"{row['name']} is not as the manifest says")
    if not data:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).view(shape)
