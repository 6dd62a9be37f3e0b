"""The branches of a thought: which there are, which is current, what was before, what runs. No model in
here; every act replaces a branch's immutable State by a new one."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from string import ascii_uppercase
from typing import Any

from harness import machine
from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.snapshot.state import State
from harness.task.ui.answers import Answers
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


@dataclass(frozen=True)
class Stand:
    """How things stand between two acts: the branches, the current one's name, and how it chooses."""

    branches: dict[str, Branch]
    current: str
    sampling: Any


class Branches:
    """sampling: how the first branch chooses. `branches` and `current` are one person's alone."""

    model = ""  # its name, for whoever finds a branch of it

    def __init__(self, sampling: Any):
        self.branches: dict[str, Branch] = {}
        self.current = ""
        self.sampling = sampling
        self.turn = threading.RLock()  # one act of this desk at a time
        self.running: Work | None = None
        self.answers = Answers()  # to what was asked
        self.typed: dict[str, Any] = {}  # into the page's controls, by name
        self.said = ""  # how the last work ended
        self.problem: Exception | None = None  # that ended it
        self._before: list[tuple[Stand, str]] = []  # how it was, and what was done then
        self._after: list[tuple[Stand, Stand, str]] = []  # what was taken back: before it, after it
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
                self._step(name, "" if work.done else "Run")  # all of it is one act
                work.advance()
                if time.monotonic() - kept > OFTEN:
                    kept = time.monotonic()
                    self._note(midway=True)
        except Stopped:
            return f"Stopped at {self.branches[name].state.tokens} tokens."
        return f"{work}"

    def set(self, name: str, value: Any) -> None:
        """Remember what was typed into the page's control `name`."""
        self.typed = {**self.typed, name: value}
        if self.branches:
            self._note()

    def fork(self) -> str:
        """A second branch from where the current one stands, sharing all of its memory; its name."""
        here = self.branch
        self._idle()
        return self._add(here, "Branch here")

    def close(self) -> str:
        """Put the current branch away (undo brings it back); its name."""
        name, _ = self.current, self.branch
        self._idle()
        self._mark("Put away")
        self.branches = {n: b for n, b in self.branches.items() if n != name}
        self.current = next(reversed(self.branches), "")
        if self.branches:
            self.sampling = self.branch.sampling
        self._note()
        return name

    @property
    def undoable(self) -> bool:
        """Whether there is an act to take back."""
        return bool(self._before)

    @property
    def redoable(self) -> bool:
        """Whether an act was taken back, and nothing else done since."""
        return bool(self._after)

    def undo(self) -> str:
        """Take the last act back, whichever branch it was on; which one, in words. Raises InputProblem
        where there is none."""
        self._idle()
        if not self._before:
            raise InputProblem("there is nothing to undo.")
        before, act = self._before.pop()
        made = self.branches.keys() - before.branches.keys()
        acted = before.current if before.current in self.branches else self.current
        after = Stand(self.branches, next(iter(made), acted), self.sampling)
        self._after.append((before, after, act))
        return f"{act}{self._stand(before)}"

    def redo(self) -> str:
        """Do again what was taken back last; which act, in words. Raises InputProblem where there is none."""
        self._idle()
        if not self._after:
            raise InputProblem("there is nothing to redo.")
        before, after, act = self._after.pop()
        self._before.append((before, act))
        return f"{act}{self._stand(after)}"

    def _stand(self, there: Stand) -> str:
        """Let everything be as it was `there`; what that changes, in words."""
        was = self.branches
        self.branches, self.current, self.sampling = there.branches, there.current, there.sampling
        self._note()
        return _difference(was, there.branches, there.current)

    def switch(self, name: str) -> None:
        """Make `name` the current branch."""
        if name not in self.branches:
            raise InputProblem(f"there is no branch {name}.")
        self._idle()
        self.current, self.sampling = name, self.branches[name].sampling
        self._note()

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

    def _new(self, state: State, act: str, own: tuple[int, ...] = (), prompt: str = "") -> str:
        return self._add(Branch(state, self.sampling, prompt=prompt).then(state, own), act)

    def _add(self, branch: Branch, act: str) -> str:
        """Make `branch` the current one; its name. A verdict on an earlier one of that name is not its."""
        self._mark(act)
        self.current = self._free()
        self.answers.judged.pop(self.current, None)
        self._put(branch)
        return self.current

    def _free(self) -> str:
        names = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))
        return next(name for name in names if name not in self.branches)

    def _put(self, branch: Branch, act: str = "", name: str | None = None) -> None:
        """Set the current branch, or `name`. act: that `undo` is to take back, if any."""
        if act:
            self._mark(act)
        self.branches = {**self.branches, name or self.current: branch}
        self._note()

    def _idle(self) -> None:
        if self.running is not None and threading.current_thread() is not self._thread:
            raise InputProblem("the model is at work. Stop it first, or wait until it is done.")

    def _mark(self, act: str) -> None:
        """Remember how it is now, right before `act` changes it: what was refused is no act."""
        now = Stand(self.branches, self.current, self.sampling)
        self._before = [*self._before, (now, act)][-DEPTH:]
        self._after = []

    def _note(self, midway: bool = False) -> None:
        if self._journal is None or (self.running is not None and not midway):
            return  # work is kept when it ends, and a long run now and then
        answers = self._answered()
        judged = answers.pop("judged")
        kept = {
            n: (b.state, {**told(b), "model": self.model, "judged": judged.get(n)})
            for n, b in self.branches.items()
        }
        self._journal.note(self.current, kept, answers)

    def _answered(self) -> dict[str, Any]:
        """All that was asked and answered, as JSON, and what was typed; `judged`: by branch."""
        return self.answers.document(self.branches) | {"typed": self.typed}

    def _step(self, name: str, act: str) -> int:
        """Choose and feed the next token of branch `name`; return its id."""
        raise NotImplementedError


def _difference(was: dict[str, Branch], now: dict[str, Branch], acted: str) -> str:
    """What has changed where one act is taken back or done again, as it is said. acted: the branch it is on."""
    for name in was.keys() - now.keys():
        return f" (branch {name} is gone)"
    for name in now.keys() - was.keys():
        return f" (branch {name} is back)"
    more = abs(now[acted].state.tokens - was[acted].state.tokens)
    many = f" of {machine.many(more, 'token')}" if more else ""
    return f"{many} on branch {acted}"


def told(branch: Branch) -> dict[str, Any]:
    """What the page knows of a branch beside its State, as JSON."""
    growth = [[g.tokens, g.kept, g.kv_bytes] for g in branch.growth[-400:]]
    noted = {"own": list(branch.own), "growth": growth, "prompt": branch.prompt}
    return {**noted, "sampler": branch.sampler().document()}
