"""A branch continued elsewhere (another cache, or the engine of `engine=`) beside how it goes on here:
greedy both, token by token."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.cache.registry import names as caches
from harness.config import sibling
from harness.engine import Answer, Engine
from harness.engine.local import answer
from harness.errors import InputProblem
from harness.pipeline.session import Session
from harness.snapshot.state import State
from harness.task.ui.work import Work

TOP = 64  # most probable tokens whose log-probabilities are compared
ENGINE = "engine "


@dataclass(frozen=True)
class Continued:
    """tokens: ids chosen there. here: ids chosen here. parted: first step at which they differ, or None.
    apart: largest difference of a log-probability up to there; None where the engine reports none.
    read: tokens that the engine had to read again; None where it does not report it. whole: the engine
    has read every token, though this branch holds fewer."""

    where: str
    tokens: tuple[int, ...]
    here: tuple[int, ...]
    parted: int | None
    apart: float | None
    read: int | None
    whole: bool


def places(engine: Engine | None, name: str) -> list[str]:
    """Where a branch can be continued: our caches, and the engine where it is another than ours."""
    return [*(f"cache {cache}" for cache in caches()), *([ENGINE + name] if engine else [])]


class Elsewhere:
    """session: our model. model: entered around its calls. engine: open, or None; asked one thing at a
    time."""

    def __init__(self, session: Session, model: AbstractContextManager[Any], engine: Engine | None):
        self.session, self.model, self.engine = session, model, engine
        self.places = places(engine, session.cfg.engine.name)
        self._turn = threading.Lock()

    def go_on(self, state: State, where: str, steps: int, work: Work) -> Continued:
        """`steps` tokens after `state`, there (counted by `work`) and here."""
        if where not in self.places:
            raise InputProblem("choose where to continue first.")
        here = self._cached(state, self.session.cfg.cache.name, steps, lambda: work.advance(0))
        if not where.startswith(ENGINE):
            there = self._cached(state, where.removeprefix("cache "), steps, work.advance)
            return _beside(where, there, here, there.tokens, 0, False)
        there = self._asked(state, steps)
        ids = there.ids or tuple(t for t in there.tokens if isinstance(t, int))
        if not ids:
            raise InputProblem("this engine names its tokens by their text only.")
        read = None if there.reused is None else state.tokens - there.reused
        return _beside(where, there, here, ids, read, state.pruned)

    def _cached(self, state: State, name: str, steps: int, done: Callable[[], None]) -> Answer:
        settings = sibling("cache", self.session.cfg, name)
        with self.model:
            runner = build_decoder(self.session.loaded, state, settings)

        def feed(ids: Sequence[int]) -> Any:
            done()
            with self.model:
                last = runner.step(torch.tensor([list(ids)]))[0, -1] if ids else state.logits[0]
            return last.float().cpu().numpy()

        return answer(feed, (), steps, TOP, state.tokens)

    def _asked(self, state: State, steps: int) -> Answer:
        assert self.engine is not None
        with self._turn:
            if isinstance(self.engine.encode("a"), str):
                raise InputProblem(
                    "this engine takes text only: its tokens could be others than this branch's."
                )
            return self.engine.resume(state.token_ids[0].tolist(), steps)


def _beside(
    where: str, there: Answer, here: Answer, ids: Sequence[Any], read: int | None, whole: bool
) -> Continued:
    ours = tuple(int(token) for token in here.tokens)
    pairs = list(zip(ids, ours, strict=False))
    parted = next((step for step, (a, b) in enumerate(pairs) if a != b), None)
    until = len(pairs) if parted is None else parted + 1
    gaps = [
        abs(p - here_top[token])
        for there_top, here_top in list(zip(there.tops, here.tops, strict=False))[:until]
        for token, p in there_top.items()
        if token in here_top
    ]
    return Continued(where, tuple(ids), ours, parted, max(gaps, default=None), read, whole)
