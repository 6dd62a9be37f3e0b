"""The library's own QuantizedCache, continued from a State."""

import torch

from harness.cache import LibraryDecoder
from harness.errors import UnsupportedModel


class MyQuantized(LibraryDecoder):
    """Codes the past once; new keys and values are coded as they come, which only this run sees."""

    def working_copy(self, cache):
        from transformers import QuantizedCache

        if self.past.pruned or self.branches > 1 or any(la.window for la in self.past.layers):
            raise UnsupportedModel(
                "cache=my_quantized serves one branch of full attention, unpruned."
            )
        coded = QuantizedCache(self.settings.backend, self.loaded.text_config)
        self.fresh = {}
        for index, (layer, whole) in enumerate(zip(coded.layers, cache.layers, strict=True)):
            layer.update(whole.keys, whole.values)
            layer.update = self._noting(index, layer.update)
        return coded

    def _noting(self, index, update):
        """The library's `update`; what is new is noted plainly, for the State that is committed."""

        def both(key, value, *more, **named):
            before = self.fresh.get(index, (key[:, :, :0], value[:, :, :0]))
            self.fresh[index] = [torch.cat(p, 2) for p in zip(before, (key, value), strict=True)]
            return update(key, value, *more, **named)

        return both

    def new_kv(self, index, tokens):
        return self.fresh[index]
