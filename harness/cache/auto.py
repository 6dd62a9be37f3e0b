"""`cache=auto`: the fastest implementation that serves this model and never touches the past."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from harness.cache.base import Fingerprint
from harness.errors import Misfit, UnsupportedModel
from harness.snapshot.state import State

NAME = "auto"
SAFE = ("manual", "view", "cloned")  # none of them writes into the past; fastest first


class Auto:
    """The first of `SAFE` that takes the state; the next one, when it refuses the first tokens fed.

    build: makes the decoder that settings name. Everything but the choice is the chosen decoder's.
    `served` names it; `refused` holds why the faster ones were passed over.
    """

    def __init__(self, build: Callable[..., Any], loaded: Any, state: State, settings: Any):
        self._build, self._given = build, (loaded, state, settings)
        self.served = ""
        self.refused: dict[str, str] = {}
        self._choose()

    def _choose(self) -> None:
        loaded, state, settings = self._given
        for name in SAFE:
            if name in self.refused:
                continue
            try:
                self._decoder = self._build(loaded, state, replace(settings, name=name))
                self.served = name
                return
            except Misfit:
                raise  # about the state: no implementation could do better
            except UnsupportedModel as refusal:
                self.refused[name] = str(refusal)
                if name == SAFE[-1]:
                    raise

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """As of every decoder. Before anything was fed, a refusal hands over to the next in line."""
        while True:
            try:
                return self._decoder.step(ids)
            except UnsupportedModel as refusal:
                if self._decoder.fed or self.served == SAFE[-1]:
                    raise
                self.refused[self.served] = str(refusal)
                self._choose()

    def fingerprint(self, digest: bool = False) -> Fingerprint:
        """Fingerprint of the State that was handed in, whichever implementation reads it."""
        layers = self._given[1].layers
        tensors = (t for layer in layers for t in layer.tensors())
        return Fingerprint.of(max((la.seen for la in layers), default=0), tensors, digest)

    def __getattr__(self, name: str) -> Any:
        if name == "_decoder":  # not chosen yet
            raise AttributeError(name)
        return getattr(self._decoder, name)
