"""The branches of a thought: which there are, which is current, what was before, what runs. No model in
here; every act replaces a branch's immutable State by a new one."""

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
from harness.task.ui.journal import Journal
from harness.task.ui.work import Stopped, Work

DEPTH = 30  # acts that can be undone
STOPPING = 5.0  # seconds that a stop waits for the call of the model that is under way
OFTEN = 20.0  # seconds after which a run that goes on is kept as far as it is


@dataclass(frozen=True)
class Growth:
    """The cache after one act: tokens sent so far, tokens held, bytes of K/V."""

    tokens: int
    kept: int
    kv_bytes: int


@dataclass(frozen=True)
class Branch:
    """One line of thought. rng of the state: the generator as it stands. own: places in the token
    buffer that the model chose. sampling: a SamplingConfig. growth: one entry per act. prompt: as it was
    typed; empty where the branch came from a snapshot."""

    state: State
    sampling: Any
    own: tuple[int, ...] = ()
    growth: tuple[Growth, ...] = ()
    prompt: str = ""

    def sampler(self) -> Sampler:
        """A sampler that goes on where this branch's generator stands."""
        return Sampler(self.sampling, rng=self.state.rng)

    def then(self, state: State, own: tuple[int, ...] | None = None) -> "Branch":
        """This branch with a new State, and the cache's size noted."""
        noted = Growth(state.tokens, state.kept_tokens, state.kv_bytes)
        own = self.own if own is None else own
        return replace(self, state=state, own=own, growth=(*self.growth, noted))


class Branches:
    """sampling: how the first branch chooses. `branches` and `current` are one person's alone."""

    def __init__(self, sampling: Any):
        self.branches: dict[str, Branch] = {}
        self.current = ""
        self.sampling = sampling
        self.turn = threading.RLock()  # one act of this desk at a time
        self.running: Work | None = None
        self.judged: dict[str, tuple[State, Any]] = {}  # the last verdict on a branch, and on what
        self.said = ""  # how the last work ended
        self.problem: Exception | None = None  # that ended it
        self._before: list[tuple[dict[str, Branch], str, Any]] = []
        self._journal: Journal | None = None
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
        self._mark()
        self.do(Work("Wrote", count), lambda work: self._write(name, count, work))

    def do(self, work: Work, act: Callable[[Work], str]) -> None:
        """Do `act` in a thread of its own: it goes on whoever looks. It says how it ended."""
        self._idle()
        self.problem, self.said, self.running = None, "", work
        self._thread = threading.Thread(target=self._run, args=(work, act), daemon=True)
        self._thread.start()

    def halt(self) -> None:
        """Ask the work to end after the call of the model that it is at."""
        if (work := self.running) is not None:
            work.stop()

    def stop(self) -> None:
        """End the work after the call of the model that it is at."""
        self.halt()
        if self._thread is not None:
            self._thread.join(STOPPING)

    def _run(self, work: Work, act: Callable[[Work], str]) -> None:
        try:
            self.said = act(work)
        except Stopped:
            self.said = "Stopped; everything is as it was before."
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

    def fork(self) -> str:
        """A second branch from where the current one stands, sharing all of its memory; its name."""
        here = self.branch
        self._mark()
        return self._add(here)

    def close(self) -> str:
        """Put the current branch away (undo brings it back); its name."""
        name, _ = self.current, self.branch
        self._mark()
        self.branches = {n: b for n, b in self.branches.items() if n != name}
        self.current = next(reversed(self.branches), "")
        if self.branches:
            self.sampling = self.branch.sampling
        self._note()
        return name

    @property
    def undoable(self) -> bool:
        """Whether there is an act to take back."""
        return any(branches is not self.branches for branches, *_ in self._before)

    def undo(self) -> None:
        """Take the last act back, whichever branch it was on. Raises InputProblem where there is none."""
        self._idle()
        while self._before and self._before[-1][0] is self.branches:
            self._before = self._before[:-1]  # acts that changed nothing
        if not self._before:
            raise InputProblem("there is nothing to undo.")
        self.branches, self.current, self.sampling = self._before.pop()
        self._note()

    def switch(self, name: str) -> None:
        """Make `name` the current branch."""
        if name not in self.branches:
            raise InputProblem(f"there is no branch {name}.")
        self._idle()
        self.current, self.sampling = name, self.branches[name].sampling

    @property
    def unkept(self) -> str:
        """Why nothing is kept at the moment; nothing where all is well."""
        return self._journal.problem if self._journal is not None else ""

    @property
    def aside(self) -> list[str]:
        """What was kept before and could not be taken up, in words."""
        return self._journal.aside if self._journal is not None else []

    def flush(self) -> None:
        """Write the autosave now."""
        if self._journal is not None:
            self._journal.flush()

    def _new(self, state: State, own: tuple[int, ...] = (), prompt: str = "") -> str:
        return self._add(Branch(state, self.sampling, prompt=prompt).then(state, own))

    def _add(self, branch: Branch) -> str:
        """Make `branch` the current one; its name. A verdict on an earlier one of that name is not its."""
        self.current = self._free()
        self.judged.pop(self.current, None)
        self._put(branch)
        return self.current

    def _free(self) -> str:
        names = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))
        return next(name for name in names if name not in self.branches)

    def _put(self, branch: Branch, name: str | None = None) -> None:
        self.branches = {**self.branches, name or self.current: branch}
        self._note()

    def _idle(self) -> None:
        if self.running is not None and threading.current_thread() is not self._thread:
            raise InputProblem("the model is at work. Stop it first, or wait until it is done.")

    def _mark(self) -> None:
        """Remember how it is now: what follows is one act. Raises InputProblem while a run goes on."""
        self._idle()
        self._before = [*self._before, (self.branches, self.current, self.sampling)][-DEPTH:]

    def _note(self, midway: bool = False) -> None:
        if self._journal is None or (self.running is not None and not midway):
            return  # work is kept when it ends, and a long run now and then
        self._journal.note(self.current, {n: (b.state, told(b)) for n, b in self.branches.items()})

    def _step(self, name: str) -> int:
        """Choose and feed the next token of branch `name`; return its id."""
        raise NotImplementedError


def told(branch: Branch) -> dict[str, Any]:
    """What the page knows of a branch beside its State, as JSON."""
    growth = [[g.tokens, g.kept, g.kv_bytes] for g in branch.growth[-400:]]
    noted = {"own": list(branch.own), "growth": growth, "prompt": branch.prompt}
    return {**noted, "sampler": branch.sampler().document()}
