"""Cache implementations: how a State is continued. `Decoder` is the base of your own, `LibraryDecoder`
of one that the library's model grows."""

from harness.variants import lazily

__getattr__ = lazily(Decoder="harness.cache.base", LibraryDecoder="harness.cache.library")
