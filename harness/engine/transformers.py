"""Ours: the model of the group `model`, through every cache that serves it.

`hit` is the cache that `cache=` names, `hit_NAME` each other one; `restored` is the state written to a
snapshot and read back. What `task.cases` may ask for beyond that is the library's own (`library.py`).
What runs the model is handed in, since rooms do not know each other.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from harness.config import EngineConfig
from harness.engine.base import ALONE, Answer, Composition, Engine, Prompt
from harness.engine.library import Library
from harness.engine.local import answer
from harness.errors import ConfigProblem


class Transformers(Engine):
    """`ours`: `cold(chunk)` and `uncached()` give a function that feeds ids; `state(ids)`, `stored(state)`,
    `decoder(state, cache)`; `caches`, the chosen one first; `encode(text)`; `versions()`; `roundoff`."""

    declared, shares, alike = True, False, ("restored",)
    compositions = (
        Composition("again"),
        Composition("in chunks of 16", chunk=16),
        Composition("without any cache", chunk=1),
    )

    def __init__(self, settings: EngineConfig, ours: Any = None):
        super().__init__(settings)
        if ours is None:
            raise ConfigProblem("engine=transformers runs the model of the group `model`.")
        self._ours = ours
        self.roundoff = ours.roundoff
        self._state: Any = None
        self._kept: tuple[int, ...] = ()  # what the state is taken for
        self._cache = ours.caches[0]
        self._library = Library(ours, settings.top)

    @cached_property
    def _offered(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        return self._library.offered()

    @property
    def further(self) -> Mapping[str, str]:  # type: ignore[override]
        return self._offered[0]

    @property
    def absent(self) -> Mapping[str, str]:  # type: ignore[override]
        return self._offered[1]

    @property
    def cases(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("hit", "restored", *(f"hit_{name}" for name in self._ours.caches[1:]))

    def versions(self) -> dict[str, str]:
        return self._ours.versions()

    def encode(self, text: str) -> Prompt:
        return self._ours.encode(text)

    def evaluate(self, prompt: Prompt, steps: int, composition: Composition = ALONE) -> Answer:
        whole = composition.chunk == 1
        feed = self._ours.uncached() if whole else self._ours.cold(composition.chunk)
        return answer(feed, prompt, steps, self.settings.top, 0)

    def resume(self, prompt: Prompt, steps: int) -> Answer:
        """A new decoder over the state for every request: the state is only read."""
        length = len(self._kept)
        if not length or tuple(prompt[:length]) != self._kept or len(prompt) == length:
            return self.evaluate(prompt, steps)
        if self._cache not in self._ours.caches:
            return self._library.answer(self._cache, prompt, length, steps)
        decoder = self._ours.decoder(self._state, self._cache)
        return answer(decoder, prompt[length:], steps, self.settings.top, length)

    def save(self, prompt: Prompt) -> None:
        self._take(prompt, prompt)

    def restore(self, case: str) -> None:
        self._cache = self._ours.caches[0]
        if case == "restored":
            self._state = self._ours.stored(self._state)
        if case.startswith("hit_"):
            self._cache = case.removeprefix("hit_")
        elif case not in self.cases:
            self._cache = case

    def forge(self, prompt: Prompt, other: Prompt) -> bool:
        self._take(other, prompt)
        self._cache = self._ours.caches[0]
        return True

    def _take(self, ids: Prompt, name: Sequence[Any]) -> None:
        self._state = self._ours.state(ids[:-1])
        self._kept = tuple(name[:-1])
