"""A continuation of a model whose RoPE factors switch: everything is processed again there, once.

That is what the library's `generate` does; a cache from before the switch holds keys that no run
without a cache would compute. See `model/switch.py`.
"""

from dataclasses import replace
from typing import Any

import torch

from harness.cache.base import Decoder, Fingerprint
from harness.cache.registry import decoder as build_decoder
from harness.capture import capture, positions_of
from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.model.loaded import Loaded
from harness.model.switch import crosses
from harness.snapshot.state import State


def decoder(loaded: Loaded, state: State, cache: CacheConfig) -> Any:
    """What continues `state`, which is only read: a Decoder, or a Switching where it may come to
    where the factors switch."""
    if loaded.switch is not None and int(state.next_position.max()) <= loaded.switch:
        return Switching(loaded, state, cache)
    return build_decoder(loaded, state, cache)


class Switching:
    """Stands where a Decoder does; `state` is only read. `first` is the decoder before the switch.

    Raises UnsupportedModel for a pruned state at the switch: what was dropped cannot come back.
    """

    def __init__(self, loaded: Loaded, state: State, cache: CacheConfig):
        self.loaded, self.cache = loaded, cache
        self.state = state.branched(cache.branches)
        self.first: Decoder = build_decoder(loaded, state, cache)
        self.decoder: Decoder = self.first
        self._ids, self._mask = self.state.token_ids, self.state.attention_mask
        self._at = int(state.next_position.max())

    def __getattr__(self, name: str) -> Any:
        """What else a decoder is asked for, from the one that serves now."""
        return getattr(self.__dict__["decoder"], name)

    def fingerprint(self, digest: bool = False) -> Fingerprint:
        """Of what was handed in at the beginning."""
        return self.first.fingerprint(digest)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed `ids` `[batch, new]`; logits `[batch, new, vocab]`."""
        ids = ids.to(self.loaded.device)
        self._ids = torch.cat([self._ids, ids], dim=1)
        self._mask = torch.cat([self._mask, torch.ones_like(ids)], dim=1)
        first, self._at = self._at, self._at + ids.shape[1]
        if not crosses(self.loaded.switch, first, self._at):
            return self.decoder.step(ids)
        if self.state.pruned:
            raise UnsupportedModel(
                f"this model's RoPE factors switch after {self.loaded.switch} tokens, where all tokens "
                "are processed again; a pruned state cannot be. Generate fewer tokens."
            )
        return self._anew(ids.shape[1])

    def _anew(self, count: int) -> torch.Tensor:
        state = self.state
        again = capture(
            self.loaded, self._ids, self._mask, state.documents, state.tokenizer_files, state.rng
        ).state
        self.decoder = build_decoder(self.loaded, again, replace(self.cache, branches=1))
        if count == 1:
            return again.logits[:, None]
        sent = None if bool(self._mask.all()) else self._mask
        return self.loaded.forward(self._ids, positions_of(self._mask), sent, keep=count)
