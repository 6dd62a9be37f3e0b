"""The work behind the page: one person's thought as branches that are stepped, pruned, paused and
compared. No page in here; every act replaces a branch's immutable State by a new one.

The attention that tokens receive is observed through the library's registry, which is one per
process: one call of the model at a time, of any desk (`MODEL`). Long texts are read in pieces, so that
no desk waits longer than a piece takes.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.capture import check_length, check_vocabulary
from harness.capture.observe import observe_again
from harness.config import SamplingConfig, option, options
from harness.engine import Engine
from harness.errors import HarnessError, InputProblem
from harness.model.sampler import Sampler
from harness.pipeline.answer import answering
from harness.pipeline.evaluation.rows import called
from harness.pipeline.prune import policy_of, pruned
from harness.pipeline.quantize import quantizer_of
from harness.pipeline.restore import identity_check
from harness.pipeline.rewind import rewound
from harness.pipeline.sampling import saved_settings
from harness.pipeline.session import Session
from harness.pipeline.step import compact, feed
from harness.pipeline.yardstick import cost
from harness.prune.base import EVERY_QUERY
from harness.prune.registry import names as policies
from harness.quantize.base import coded_tokens
from harness.snapshot.state import State
from harness.task.ui.answers import Place, answers
from harness.task.ui.attention import Sight, bright, held, rescored
from harness.task.ui.branches import Branch, Growth
from harness.task.ui.continuation import Continued, Elsewhere
from harness.task.ui.evaluation import Evaluation
from harness.task.ui.journal import Journal
from harness.task.ui.shelf import Shelf
from harness.task.ui.verdict import Proof, proven
from harness.task.ui.work import Turns, Work, counted
from harness.tokenizer.policy import continuation, encode

QUANTIZERS = tuple(q for q in options("quantize") if q not in ("none", "library"))
POLICIES = tuple(p for p in policies() if p != "chain")
PIECE, FEW, LIGHT = 256, 64, 1.2e10  # tokens read at once: at most, at least, times parameters
MODEL = Turns()  # who may call the model now
JUDGING = threading.Lock()  # one verdict at a time
log = logging.getLogger(__name__)
SEEN = option("prune", "heavy_hitter", ratio=1.0)  # so that the capture records brightness


class Desk(Sight):
    """session: the model, shared and only read. shelf: where snapshots go. scratch: a directory that
    the verdict's own snapshot may use. engine: open, where `engine=` names another than ours. `branches` and `current` are this person's alone."""

    def __init__(self, session: Session, shelf: Shelf, scratch: Path, engine: Engine | None = None):
        self.loaded, self.cfg = session.loaded, session.cfg
        self._session = replace(session, cfg=replace(session.cfg, prune=SEEN), times={})
        self.shelf, self.scratch = shelf, scratch
        self.asked = True  # whether the model answered after the last pruning or quantizing
        self.elsewhere = Elsewhere(session, MODEL, engine)
        super().__init__(session.sampling)
        self.model = called(self.cfg.model.name, session.loaded.source)
        self.evaluation = Evaluation(session, lambda: MODEL, scratch, self._note)

    def begin(self, text: str, work: Work | None = None) -> int:
        """Prefill `text` under the tokenizer policy, as a branch of its own; return its tokens."""
        if not text:
            raise InputProblem("there is no prompt. Type one first.")
        self._idle()
        row = encode(self.cfg.tokenizer, self.loaded.tokenizer, text)
        if not text.strip() and not self._worded(row.ids):
            raise InputProblem("the prompt has nothing but blanks in it. Type some words first.")
        check_length(self.loaded, len(row.ids), 1)
        work = work or Work("Read")
        work.total, first = len(row.ids), row.ids[: self.piece]
        with MODEL:
            capture = self._session.capture
            state = capture([replace(row, ids=first)], Sampler(self.sampling, self.cfg.seed)).state
        work.advance(len(first))
        self._new(self._read(state, row.ids[self.piece :], work), "Start", prompt=text)
        return len(row.ids)

    def _worded(self, ids: Sequence[int]) -> bool:
        """Whether `ids` are more than blanks between a begin and an end: a chat template's marks are."""
        own = self.loaded.tokenizer
        marks = {*own.all_special_ids} - {own.bos_token_id, own.eos_token_id}
        return bool(own.decode(ids, skip_special_tokens=True).strip() or marks & {*ids})

    def say(self, text: str, work: Work | None = None) -> int:
        """Feed `text`, exactly as typed, to the current branch; return how many tokens it has."""
        branch = self.branch
        self._idle()
        ids = continuation(self.cfg.tokenizer, self.loaded.tokenizer, text).ids
        if not ids:
            raise InputProblem("there is no text to add. Type some first.")
        check_length(self.loaded, int(branch.state.next_position.max()), len(ids))
        check_vocabulary(self.loaded, ids)
        work = work or Work("Read")
        work.total = len(ids)
        fed = self._read(branch.state, ids, work).document("generation", begun=None)
        self._put(branch.then(fed), "Add")
        return len(ids)

    def step(self) -> int:
        """Choose the next token of the current branch and feed it; return its id."""
        self._idle()
        return self._step(self.current, "Step")

    def _step(self, name: str, act: str) -> int:
        branch = self.branches[name] if self.branches else self.branch
        sampler = branch.sampler()
        sampler.begin(branch.state)
        token = sampler.choose(branch.state.logits, branch.state.token_ids)
        state = sampler.paused(self._fed(branch.state, token))
        self._put(branch.then(state, (*branch.own, branch.state.tokens)), act, name)
        return int(token)

    def sample(self, name: str, **settings: Any) -> None:
        """How the current branch chooses from now on; its generator stays where it is."""
        self._idle()
        self.sampling = SamplingConfig(name=name, **settings)
        if self.branches:
            self._put(replace(self.branch, sampling=self.sampling))

    def prune(self, policy: str, keep: int, per_head: bool = True) -> int:
        """Keep at most `keep` tokens per layer of the current branch, each KV head its own where
        `per_head` and the policy scores them; return how many went."""
        branch, before = self.branch, self.branch.state
        self._idle()
        budget = {"tokens": keep, "ratio": None, "positions": "original"}
        ours = self.cfg.prune if self.cfg.prune.name == policy else option("prune", policy)
        settings = replace(ours, **budget, **({} if per_head else {"per_head": False}))
        chosen = policy_of(settings)
        assert chosen is not None
        seen = before
        if chosen.observes is not None and (chosen.observes != EVERY_QUERY or not bright(before)):
            with MODEL:
                seen = observe_again(self.loaded, before, chosen.observes)
        small = pruned(chosen, seen)
        if list(map(held, small.layers)) == list(map(held, before.layers)):
            return 0
        layers = [rescored(old, new) for old, new in zip(before.layers, small.layers, strict=True)]
        answered = self._answering(small.with_layers(tuple(map(compact, layers))))
        self._put(branch.then(answered), "Prune")
        return max(
            before.kept_tokens - self.branch.state.kept_tokens, 1
        )  # a layer may keep them all

    def quantize(self, name: str) -> tuple[int, int]:
        """Keep the current branch's keys and values as codes, and go on from what these say; bytes of
        the codes, and of what they replaced. Raises InputProblem where nothing would be coded."""
        branch = self.branch
        self._idle()
        coder = quantizer_of(
            self.cfg.quantize if self.cfg.quantize.name == name else option("quantize", name)
        )
        assert coder is not None
        coded = coder.quantize(branch.state)
        if not coded.quantized:
            raise InputProblem(
                f"{name} keeps the last {coder.recent} tokens in full precision, and this thought has no "
                "more: nothing would change. Step or run first, or choose another."
            )
        if coded_tokens(coded.layers) == coded_tokens(branch.state.layers):
            raise InputProblem(
                f"All that {name} would code is in codes already, and codes are not coded again: nothing "
                "would change. Step or run first, or undo the earlier one."
            )
        self._put(branch.then(self._answering(coded)), "Quantize")
        return coded.kv_bytes, branch.state.kv_bytes

    def back(self, at: int) -> str:
        """A branch that stands after the first `at` tokens of the current one; its name. Raises
        InputProblem for a place that it does not have."""
        branch = self.branch
        self._idle()
        with MODEL:
            made = rewound(self.loaded, branch.state, at, self.cfg.cache)
            state = made.state.with_layers(tuple(map(compact, made.state.layers)))
            unseen = bright(branch.state) and not bright(state) and not state.pruned
            if unseen and not self.loaded.cost(at).worth_saying:
                state = observe_again(self.loaded, state, EVERY_QUERY)
        own = tuple(i for i in branch.own if i < at)
        return self._new(state, "Branch there", own, branch.prompt)

    def go_on(self, where: str, steps: int, work: Work | None = None) -> Continued:
        """Continue the current branch elsewhere, as a branch of its own, beside how it goes on here."""
        work = work or Work(where, steps)
        here, branch = self.current, self.branch
        self._idle()
        check_length(self.loaded, int(branch.state.next_position.max()), steps)
        made = self.elsewhere.go_on(branch.state, where, steps, work)
        begun, end = branch.state.tokens, branch.state.tokens + len(made.tokens)
        own = (*branch.own, *range(begun, end))
        name = self._add(branch.then(self._read(branch.state, made.tokens), own), "Go on")
        self.answers.went = Place.of(name, self.branches[name].state), here, made
        self._note()
        return made

    def save(self, name: str) -> dict[str, Any]:
        """Write the current branch under a new name, generator and sampler with it; its manifest."""
        self._idle()
        branch = self.branch
        generation = {"sampler": branch.sampler().document(), "own": list(branch.own)}
        manifest = self.shelf.save(branch.state.document("generation", **generation), name)
        self._put(replace(branch, state=replace(branch.state, parent=manifest["id"])))
        return manifest

    def load(self, name: str) -> None:
        """Restore `name`, identity compared, as another branch: the next token will be the one that
        would have come when it was saved. Raises RestoreRefused, SnapshotInvalid, InputProblem."""
        self.restore(self.shelf.load(name), self.shelf.folder / name)

    def restore(self, state: State, where: Path) -> None:
        """Go on from a stored State that was read from `where`."""
        if state.batch != 1:
            raise InputProblem("the page follows one thought; this snapshot holds several.")
        self._idle()
        with MODEL:
            state, _ = identity_check(self._session, state, where)
        generation = state.documents["generation"]
        sampling = saved_settings(state.documents, str(where)) or SamplingConfig(name="greedy")
        own = tuple(i for i in generation.get("own", ()) if isinstance(i, int))
        restored = Branch(state.to(self.loaded.device), sampling)
        self._add(restored.then(restored.state, own), "Load")
        self.sampling = sampling

    def judging(self, steps: int) -> str:
        """What a verdict is going to take, where that is worth knowing; else nothing."""
        tokens, settings = self.branch.state.tokens, self.cfg.compare
        if tokens > settings.limit:
            return ""
        ahead = cost(self.loaded, 1, tokens + steps, settings.oracle, (1,) * steps)
        return f", {ahead}" if ahead.worth_saying else ""

    def verdict(self, steps: int, work: Work | None = None) -> Proof:
        """Save the current branch, restore it, and judge `steps` tokens of what comes back; `answers`
        keeps it."""
        branch = self.branch
        cfg = replace(self._session.cfg, sampling=branch.sampling)
        work = work or Work("Judging")
        while not JUDGING.acquire(timeout=0.1):
            work.advance(0)
        try:
            with MODEL, counted(work, MODEL):
                session = replace(self._session, cfg=cfg)
                made = proven(session, branch.state, self.scratch, steps)
        finally:
            JUDGING.release()
        self.answers.judged[self.current] = Place.of(self.current, branch.state), made
        self._note()
        return made

    def keep(self, journal: Journal) -> None:
        """Take over what `journal` kept, and keep everything there from now on. What it cannot take over
        stays there."""
        self._journal = journal
        current, kept = journal.read()
        for name, (state, told) in kept.items():
            try:
                with MODEL:
                    state, _ = identity_check(self._session, state, journal.folder)
            except HarnessError as problem:  # it stays where it is
                log.warning("branch %s was not taken over: %s", name, problem)
                journal.leave(name, told, _unlike(problem, str(told.get("model") or "")))
                continue
            sampling = saved_settings(state.documents, name) or SamplingConfig(name="greedy")
            growth = tuple(Growth(*row) for row in told.get("growth", ()))
            own, prompt = tuple(told.get("own", ())), str(told.get("prompt", ""))
            here = state.to(self.loaded.device)
            self.branches[name] = Branch(here, sampling, own, growth, prompt)
        self._before, self._after = [], []
        judged = {name: kept[name][1].get("judged") for name in self.branches if name in kept}
        told = {"judged": {name: made for name, made in judged.items() if made}}
        self.answers = answers({**journal.answers, **told}, self.branches)
        self.evaluation.take_up(journal.answers.get("evaluation"))
        typed = journal.answers.get("typed")
        self.typed = typed if isinstance(typed, dict) else {}
        if self.branches:
            self.current = current if current in self.branches else next(iter(self.branches))
            self.sampling = self.branch.sampling

    def _answered(self) -> dict[str, Any]:
        kept = self.evaluation.kept
        return super()._answered() | ({"evaluation": kept} if kept else {})

    def _answering(self, state: State) -> State:
        """`state` with the logits of what it still holds; `asked` says whether these can be had."""
        with MODEL:
            made = answering(self.loaded, state, self.cfg.cache)
        self.asked = made is not None
        return state if made is None else made.with_layers(tuple(map(compact, made.layers)))

    def _fed(self, state: State, ids: torch.Tensor) -> State:
        wanted = EVERY_QUERY if bright(state) else None
        with MODEL:
            grown = feed(self.loaded, state, ids, self.cfg.cache, wanted).state
        return grown.with_layers(tuple(map(compact, grown.layers)))

    @property
    def piece(self) -> int:
        """Tokens that are read at once: fewer the larger the model is, so that nobody waits long."""
        return min(PIECE, max(FEW, int(LIGHT / self.loaded.parameters)))

    def _read(self, state: State, ids: Sequence[int], work: Work | None = None) -> State:
        """`state` with `ids` fed to it, piece by piece."""
        for start in range(0, len(ids), self.piece):
            piece = ids[start : start + self.piece]
            state = self._fed(state, torch.tensor([list(piece)]))
            if work is not None:
                work.advance(len(piece))
        return state


def _unlike(problem: HarnessError, model: str) -> str:
    """What a branch is that cannot be taken over. model: its own, as far as it is known."""
    rows = getattr(problem, "differences", None) or ()
    if rows and all(str(row.field).startswith("proof") for row in rows):
        return "fails its proof: its keys and values do not give the logits it was kept with"
    whose = f", {model}: start the page with that one to go on with it" if model else ""
    return f"belongs to another model{whose}"
