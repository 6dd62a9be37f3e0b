"""`cache=deepcopy`: the whole cache is copied before the first step, so that nobody else's changes."""

import copy
from typing import Any

from harness.cache.library import LibraryDecoder, cache_tensors


class Deepcopy(LibraryDecoder):
    """Isolated by paying for it: every byte once on opening, and again at each step as the library
    concatenates. The comparator that the read-only caches replace."""

    def working_copy(self, cache: Any) -> Any:
        copied = copy.deepcopy(cache)
        self.bytes_copied += sum(t.nbytes for _, t in cache_tensors(copied))
        return copied
