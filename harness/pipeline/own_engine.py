"""Our own model as an engine needs it: cold, without any cache, and from a State through any cache."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.cache.registry import names
from harness.capture import check_length, new_cache
from harness.errors import UnsupportedModel
from harness.pipeline.session import Session
from harness.save import store
from harness.snapshot.state import State
from harness.tokenizer.policy import Encoded

Feed = Callable[[Sequence[int]], Any]


class Ours:
    """Over a Session. caches: those that serve this model, the one that `cache=` names first."""

    def __init__(self, session: Session):
        self.session, self.loaded = session, session.loaded
        self.roundoff = torch.finfo(self.loaded.dtype).eps / 2  # of its logits
        first = session.cfg.cache.name
        short = self.state(range(1, 9))
        self.caches = [first, *(n for n in names() if n != first and self._serves(short, n))]

    def versions(self) -> dict[str, str]:
        cfg = self.session.cfg
        libraries = {name: metadata.version(name) for name in ("transformers", "torch")}
        return {**libraries, "model": cfg.model.path or cfg.model.name, "dtype": cfg.dtype}

    def encode(self, text: str) -> list[int]:
        """The declared prompt under the tokenizer policy; `text` is what it says."""
        return list(self.session.encoded()[0].ids)

    def cold(
        self, chunk: int | None, cache: Any = None, forward: Any = None, start: int = 0
    ) -> Feed:
        """Prefill (in chunks) and decode with the library's own cache, never interrupted. cache: one of
        the library's with `start` tokens in it, which grows. forward: in place of `Loaded.forward`."""
        cache, position = new_cache(self.loaded) if cache is None else cache, start
        forward = forward or self.loaded.forward

        def feed(ids: Sequence[int]) -> Any:
            nonlocal position
            size = chunk or len(ids)
            for at in range(0, len(ids), size):
                new = torch.tensor([list(ids[at : at + size])], device=self.loaded.device)
                places = torch.arange(position, position + new.shape[1], device=new.device)[None]
                logits = forward(new, places, None, cache, keep=1)
                position += new.shape[1]
            return logits[0, -1].float().cpu().numpy()

        return feed

    def uncached(self) -> Feed:
        """Everything again for every token."""
        context: list[int] = []

        def feed(ids: Sequence[int]) -> Any:
            context.extend(ids)
            whole = torch.tensor([context], device=self.loaded.device)
            places = torch.arange(len(context), device=whole.device)[None]
            return self.loaded.forward(whole, places, keep=1)[0, -1].float().cpu().numpy()

        return feed

    def state(self, ids: Sequence[int]) -> State:
        """The State after `ids`."""
        check_length(self.loaded, len(ids), 1)
        row = Encoded(tuple(ids), "", "ids")
        return self.session.capture([row], self.session.sampler()).state

    def stored(self, state: State) -> State:
        """The same through `save=`, on disk and back; what an earlier repeat wrote is replaced."""
        place, access = self.session.folder / "snapshot", store.current(overwrite=True)
        store.save(state, place, self.session.cfg.save, access=access)
        return store.load(place)[0].to(self.loaded.device)

    def decoder(self, state: State, cache: str) -> Feed:
        """Continue from `state`, which is only read."""
        settings = replace(self.session.cfg.cache, name=cache)
        decoder = build_decoder(self.loaded, state, settings)
        return lambda ids: decoder.step(torch.tensor([list(ids)]))[0, -1].float().cpu().numpy()

    def _serves(self, state: State, cache: str) -> bool:
        try:
            self.decoder(state, cache)([1])
        except UnsupportedModel:
            return False
        return True
