"""`save=memory`: the payload stays in this process; manifest and digests are as in every format.

The payload file holds only the digest of what is kept, so equal payloads are kept once. Everything
is given back when the process ends.
"""

from collections.abc import Iterator
from typing import Any

import torch

from harness.save.base import Format
from harness.save.files import Sink, Source
from harness.save.streaming import Stream
from harness.snapshot.digest import digest_document

_kept: dict[str, dict[str, torch.Tensor]] = {}


class Memory(Format):
    extension = "memory"
    mapped = True  # nothing is read into new memory
    on_disk = False

    def write(self, sink: Sink, stream: Stream) -> None:
        """Keeps copies: whoever writes into the originals later does not change what was saved."""
        tensors = {name: tensor.clone() for name, tensor in stream}
        rows = [[e.name, e.dtype, e.shape, stream.digests[e.name]] for e in stream.entries]
        ticket = digest_document(rows)
        _kept[ticket] = tensors
        sink.write(ticket.encode())

    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """`(name, tensor)` for every name in `wanted`: the kept tensors themselves, not copies."""
        tensors = _kept.get(source.read(64).decode("ascii", "replace"))
        if tensors is None:
            raise ValueError("its payload was kept in the memory of a process that has ended")
        for name in wanted:
            if name not in tensors:
                raise ValueError(f"it does not hold {name}")
            yield name, tensors[name]
