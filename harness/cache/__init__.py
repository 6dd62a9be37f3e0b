"""Cache implementations: how a State is continued. `Decoder` is the base of your own."""

from harness.variants import lazily

__getattr__ = lazily(Decoder="harness.cache.base")
