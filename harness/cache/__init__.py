"""Cache implementations: how a State is continued. `Decoder` is the base of your own, `LibraryDecoder`
of one that the library's model grows."""

from typing import TYPE_CHECKING

from harness.variants import lazily

if TYPE_CHECKING:
    from harness.cache.base import Decoder
    from harness.cache.library import LibraryDecoder

__all__ = ["Decoder", "LibraryDecoder"]
__getattr__ = lazily(Decoder="harness.cache.base", LibraryDecoder="harness.cache.library")
