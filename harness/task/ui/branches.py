"""Branches of one session: which exist, which is current, what runs. Every act replaces a branch's
immutable State by a new one; what would lose tokens makes a branch of its own, so nothing needs an undo."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from string import ascii_uppercase
from typing import Any

from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.snapshot.state import State
from harness.task.ui.answers import Answers
from harness.task.ui.autosave import Autosave
from harness.task.ui.work import Stopped, Work

STOPPING = 5.0  # seconds that a stop waits for the model's current call
OFTEN = 20.0  # seconds between two autosaves of a long run


@dataclass(frozen=True)
class Growth:
    """The cache after one act: tokens sent so far, tokens held, bytes of K/V."""

    tokens: int
    kept: int
    kv_bytes: int


@dataclass(frozen=True)
class Branch:
    """One line of thought. own: positions of tokens that the model chose. sampling: a SamplingConfig.
    growth: one entry per act. prompt: as typed; empty for a branch from a snapshot."""

    state: State
    sampling: Any
    own: tuple[int, ...] = ()
    growth: tuple[Growth, ...] = ()
    prompt: str = ""

    def sampler(self) -> Sampler:
        """A sampler that goes on where this branch's generator is."""
        return Sampler(self.sampling, rng=self.state.rng)

    def then(self, state: State, own: tuple[int, ...] | None = None) -> "Branch":
        """This branch with a new State, and the cache's size noted."""
        noted = Growth(state.tokens, state.kept_tokens, state.kv_bytes)
        own = self.own if own is None else own
        return replace(self, state=state, own=own, growth=(*self.growth, noted))

    def notes(self) -> dict[str, Any]:
        """What the autosave keeps beside the State, as JSON."""
        growth = [[g.tokens, g.kept, g.kv_bytes] for g in self.growth[-400:]]
        sampler = self.sampler().document()
        return {"own": [*self.own], "growth": growth, "prompt": self.prompt, "sampler": sampler}


class Branches:
    """sampling: how the first branch chooses."""

    model = ""  # its name, noted with each branch

    def __init__(self, sampling: Any):
        self.branches: dict[str, Branch] = {}
        self.current = ""
        self.sampling = sampling
        self.turn = threading.RLock()  # one act of this session at a time
        self.running: Work | None = None
        self.answers = Answers()
        self.typed: dict[str, Any] = {}  # values of the page's controls, by name
        self.message = ""  # how the last work ended
        self.problem: Exception | None = None  # that ended it
        self._autosave: Autosave | None = None
        self._thread: threading.Thread | None = None

    @property
    def branch(self) -> Branch:
        """The current branch. Raises InputProblem before there is one."""
        if not self.branches:
            raise InputProblem(
                "there is no thought yet. Type a prompt and start, or load a snapshot."
            )
        return self.branches[self.current]

    def start(self, count: int) -> None:
        """Write `count` tokens on the current branch."""
        name, _ = self.current, self.branch
        self.do(Work("Wrote", count), lambda work: self._write(name, count, work))

    def do(self, work: Work, act: Callable[[Work], str]) -> None:
        """Run `act` in a thread of its own; it returns the final message."""
        self._idle()
        self.problem, self.message, self.running = None, "", work
        self._thread = threading.Thread(target=self._run, args=(work, act), daemon=True)
        self._thread.start()

    def halt(self) -> None:
        """Ask the work to end after the model's current call."""
        if (work := self.running) is not None:
            work.stop()

    def stop(self) -> None:
        """End the work after the model's current call."""
        self.halt()
        if self._thread is not None:
            self._thread.join(STOPPING)

    def _run(self, work: Work, act: Callable[[Work], str]) -> None:
        try:
            self.message = act(work)
        except Stopped:
            self.message = "Stopped; nothing has changed."
        except Exception as problem:
            self.problem = problem
        finally:
            self.running = None
            self._note()

    def _write(self, name: str, count: int, work: Work) -> str:
        kept = time.monotonic()
        try:
            for _ in range(count):
                work.advance(0)
                self._step(name)
                work.advance()
                if time.monotonic() - kept > OFTEN:
                    kept = time.monotonic()
                    self._note(midway=True)
        except Stopped:
            return f"Stopped at {self.branches[name].state.tokens} tokens."
        return f"{work}"

    def set(self, name: str, value: Any) -> None:
        """Remember the value of the page's control `name`."""
        self.typed = {**self.typed, name: value}
        if self.branches:
            self._note()

    def fork(self) -> str:
        """A second branch of the current state, sharing its memory; its name."""
        here = self.branch
        self._idle()
        return self._add(here)

    def close(self) -> str:
        """Drop the current branch; its name."""
        name, _ = self.current, self.branch
        self._idle()
        self.branches = {n: b for n, b in self.branches.items() if n != name}
        self.current = next(reversed(self.branches), "")
        if self.branches:
            self.sampling = self.branch.sampling
        self._note()
        return name

    def switch(self, name: str) -> None:
        """Make `name` the current branch."""
        if name not in self.branches:
            raise InputProblem(f"there is no branch {name}.")
        self._idle()
        self.current, self.sampling = name, self.branches[name].sampling
        self._note()

    @property
    def unsaved(self) -> str:
        """Why the autosave fails at the moment, or empty."""
        return self._autosave.problem if self._autosave is not None else ""

    @property
    def skipped(self) -> list[str]:
        """Messages about autosaved branches that could not be read."""
        return self._autosave.skipped if self._autosave is not None else []

    def flush(self) -> None:
        """Write the autosave now."""
        if self._autosave is not None:
            self._autosave.flush()

    def _add(self, branch: Branch) -> str:
        """Make `branch` the current one under a free name; the name."""
        names = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))
        self.current = next(name for name in names if name not in self.branches)
        self.answers.judged.pop(self.current, None)
        self._put(branch)
        return self.current

    def _put(self, branch: Branch, name: str | None = None) -> None:
        """Replace the current branch, or `name`."""
        self.branches = {**self.branches, name or self.current: branch}
        self._note()

    def _idle(self) -> None:
        if self.running is not None and threading.current_thread() is not self._thread:
            raise InputProblem("the model is at work. Stop it first, or wait until it is done.")

    def _note(self, midway: bool = False) -> None:
        if self._autosave is None or (self.running is not None and not midway):
            return  # work is kept when it ends, a long run also midway
        kept = {n: (b.state, {**b.notes(), "model": self.model}) for n, b in self.branches.items()}
        self._autosave.note(self.current, kept, self.typed)

    def _step(self, name: str) -> int:
        """Choose and feed the next token of branch `name`; return its id."""
        raise NotImplementedError
