"""`save=torch`: one `torch.save` file. Anybody's `torch.load` reads it; we read it as data, and a tensor is a
view of the mapped file where its record lies."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from harness.save.base import Format
from harness.save.files import Sink, Source
from harness.save.streaming import Stream, joined
from harness.snapshot.torch_file import Archive, Stored


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
        archive = Archive(source.buffer)
        described = archive.described()
        if not isinstance(described, dict) or not all(
            isinstance(v, Stored) for v in described.values()
        ):
            raise ValueError("it holds no dict of tensors")
        for name, row in wanted.items():
            stored = described.get(name)
            if stored is None:
                raise ValueError(f"it does not hold {name} as a plain tensor")
            shape = tuple(row["shape"])
            if (
                stored.dtype not in (None, row["dtype"])
                or stored.shape != shape
                or not stored.plain
            ):
                raise ValueError(f"{name} is not as the manifest says")
            start, nbytes = archive.storage(stored)
            if nbytes != row["nbytes"]:
                raise ValueError(f"{name} is not laid out plainly")
            yield name, source.tensor(row, start)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Without the hidden rest of a larger storage, which `torch.save` would write too."""
    tensor = tensor.contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
