"""`save=torch`: one `torch.save` file, read with `weights_only` and memory mapped.

Only a plain, uncompressed zip of about the expected number of records is handed to the library.
"""

import pickle
import zipfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from harness.save.base import Format
from harness.save.files import Sink, Source
from harness.save.streaming import Stream, joined


class Torch(Format):
    extension = "pt"
    mapped = True

    def write(self, sink: Sink, stream: Stream) -> None:
        """A dict of tensors, digested in the background while the library writes them one by one."""
        with ThreadPoolExecutor(1, "digest") as background:
            digested = background.submit(lambda: deque(stream, maxlen=0))
            torch.save({e.name: _alone(joined(e)) for e in stream.entries}, sink)
            digested.result()

    def read(self, source: Source, wanted: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """As of every format. Raises ValueError for anything but plain tensors."""
        _check_archive(source)
        try:
            held = torch.load(source.path, weights_only=True, mmap=True, map_location="cpu")
        except (
            RuntimeError,
            pickle.UnpicklingError,
            KeyError,
            TypeError,
            AttributeError,
        ) as problem:
            raise ValueError(str(problem).splitlines()[0][:200]) from None
        if not isinstance(held, dict):
            raise ValueError("it holds no dict of tensors")
        for name in wanted:
            tensor = held.get(name)
            if type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
                raise ValueError(f"it does not hold {name} as a plain tensor")
            if not tensor.is_contiguous() or tensor.untyped_storage().nbytes() < tensor.nbytes:
                raise ValueError(f"{name} is not laid out plainly")
            yield name, tensor


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Without the hidden rest of a larger storage, which `torch.save` would write too."""
    tensor = tensor.contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _check_archive(source: Source) -> None:
    try:
        with zipfile.ZipFile(source.file) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as problem:
        raise ValueError(f"it is no zip archive: {problem}") from None
    if any(r.compress_type != zipfile.ZIP_STORED or r.flag_bits & 1 for r in records):
        raise ValueError("it holds compressed records, which torch.save never writes")
    if sum(r.file_size for r in records) > source.nbytes:
        raise ValueError("its records claim more bytes than the file has")
    if any(r.filename.count("/") > 2 or ".." in r.filename for r in records):
        raise ValueError("it holds a record with a strange name")
