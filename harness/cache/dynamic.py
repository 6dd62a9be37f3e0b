"""`cache=dynamic`: the caller's own DynamicCache is handed to the model and grows under its feet."""

from harness.cache.library import LibraryDecoder


class Dynamic(LibraryDecoder):
    """Mutates the object that was handed in, which the audit shows; the State stays untouched."""
