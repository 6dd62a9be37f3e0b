"""One person's thought: branches that are stepped, pruned, quantized, saved, judged. No gradio.

Attention is observed through the library's registry, one per process: one call of the model at a time,
of any session (`MODEL`). Long texts are read in pieces, so that no session waits longer than a piece.
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
from harness.task.ui.answers import Place
from harness.task.ui.autosave import Autosave
from harness.task.ui.branches import Branch, Growth
from harness.task.ui.continuation import Continued, Elsewhere
from harness.task.ui.evaluation import Evaluation
from harness.task.ui.snapshots import SnapshotStore
from harness.task.ui.verdict import Proof, proven
from harness.task.ui.view import View, bright, held, rescored
from harness.task.ui.work import Turns, Work, counted
from harness.tokenizer.policy import continuation, encode

QUANTIZERS = tuple(q for q in options("quantize") if q not in ("none", "library"))
POLICIES = tuple(p for p in policies() if p != "chain")
PIECE, FEW, LIGHT = 256, 64, 1.2e10  # tokens read at once: at most, at least, times parameters
MODEL = Turns()  # who may call the model now
JUDGING = threading.Lock()  # one verdict at a time
log = logging.getLogger(__name__)
OBSERVING = option("prune", "heavy_hitter", ratio=1.0)  # makes a capture record attention received


class PageSession(View):
    """session: the shared, read-only model. store: the named snapshots. scratch: a folder for a verdict's
    own snapshot. engine: an open engine other than ours, or None."""

    def __init__(
        self, session: Session, store: SnapshotStore, scratch: Path, engine: Engine | None = None
    ):
        self.loaded, self.cfg = session.loaded, session.cfg
        self._session = replace(session, cfg=replace(session.cfg, prune=OBSERVING), times={})
        self.store, self.scratch = store, scratch
        self.fresh = True  # whether the logits are those of what was pruned or quantized last
        self.elsewhere = Elsewhere(session, MODEL, engine)
        super().__init__(session.sampling)
        self.model = called(self.cfg.model.name, session.loaded.source)
        self.evaluation = Evaluation(session, lambda: MODEL, scratch)

    def begin(self, text: str, work: Work | None = None) -> int:
        """Prefill `text` under the tokenizer policy, as a branch of its own; its tokens."""
        if not text:
            raise InputProblem("there is no prompt. Type one first.")
        self._idle()
        row = encode(self.cfg.tokenizer, self.loaded.tokenizer, text)
        if not text.strip() and not self._has_words(row.ids):
            raise InputProblem("the prompt has nothing but blanks in it. Type some words first.")
        check_length(self.loaded, len(row.ids), 1)
        work = work or Work("Read")
        work.total, first = len(row.ids), row.ids[: self.piece]
        with MODEL:
            sampler = Sampler(self.sampling, self.cfg.seed)
            state = self._session.capture([replace(row, ids=first)], sampler).state
        work.advance(len(first))
        state = self._read(state, row.ids[self.piece :], work)
        self._add(Branch(state, self.sampling, prompt=text).then(state))
        return len(row.ids)

    def _has_words(self, ids: Sequence[int]) -> bool:
        """Whether `ids` are more than blanks: the marks of a chat template are."""
        tokenizer = self.loaded.tokenizer
        marks = {*tokenizer.all_special_ids} - {tokenizer.bos_token_id, tokenizer.eos_token_id}
        return bool(tokenizer.decode(ids, skip_special_tokens=True).strip() or marks & {*ids})

    def add(self, text: str, work: Work | None = None) -> int:
        """Feed `text`, exactly as typed, to the current branch; its tokens."""
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
        self._put(branch.then(fed))
        return len(ids)

    def step(self) -> int:
        """Choose the next token of the current branch and feed it; its id."""
        self._idle()
        return self._step(self.current)

    def _step(self, name: str) -> int:
        branch = self.branches[name] if self.branches else self.branch
        sampler = branch.sampler()
        sampler.begin(branch.state)
        token = sampler.choose(branch.state.logits, branch.state.token_ids)
        state = sampler.paused(self._fed(branch.state, token))
        self._put(branch.then(state, (*branch.own, branch.state.tokens)), name)
        return int(token)

    def sample(self, name: str, **settings: Any) -> None:
        """How the current branch chooses from now on; its generator stays where it is."""
        self._idle()
        self.sampling = SamplingConfig(name=name, **settings)
        if self.branches:
            self._put(replace(self.branch, sampling=self.sampling))

    def prune(self, policy: str, keep: int, per_head: bool = True) -> int:
        """A branch that holds at most `keep` tokens per layer of the current one, each KV head its own
        where `per_head` and the policy scores them; how many went. 0: no branch was made."""
        branch, before = self.branch, self.branch.state
        self._idle()
        budget = {"tokens": keep, "ratio": None, "positions": "original"}
        base = self.cfg.prune if self.cfg.prune.name == policy else option("prune", policy)
        settings = replace(base, **budget, **({} if per_head else {"per_head": False}))
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
        self._add(branch.then(answered))
        # one layer may keep every token
        return max(before.kept_tokens - answered.kept_tokens, 1)

    def quantize(self, name: str) -> tuple[int, int]:
        """A branch whose keys and values are codes; bytes of the codes, and before. Raises InputProblem
        where nothing would be coded."""
        branch = self.branch
        self._idle()
        same = self.cfg.quantize.name == name
        coder = quantizer_of(self.cfg.quantize if same else option("quantize", name))
        assert coder is not None
        coded = coder.quantize(branch.state)
        if not coded.quantized:
            raise InputProblem(
                f"{name} keeps the last {coder.recent} tokens in full precision, and this thought has no "
                "more: nothing would change. Step or run first, or choose another."
            )
        if coded_tokens(coded.layers) == coded_tokens(branch.state.layers):
            raise InputProblem(
                f"everything that {name} would code is already coded: nothing would change. "
                "Step or run first, or go back to the branch it was made from."
            )
        self._add(branch.then(self._answering(coded)))
        return coded.kv_bytes, branch.state.kv_bytes

    def back(self, at: int) -> str:
        """A branch of the first `at` tokens of the current one; its name."""
        branch = self.branch
        self._idle()
        with MODEL:
            made = rewound(self.loaded, branch.state, at, self.cfg.cache)
            state = made.state.with_layers(tuple(map(compact, made.state.layers)))
            unseen = bright(branch.state) and not bright(state) and not state.pruned
            if unseen and not self.loaded.cost(at).worth_saying:
                state = observe_again(self.loaded, state, EVERY_QUERY)
        own = tuple(i for i in branch.own if i < at)
        return self._add(Branch(state, self.sampling, prompt=branch.prompt).then(state, own))

    def go_on(self, where: str, steps: int, work: Work | None = None) -> Continued:
        """Continue the current branch elsewhere, as a branch of its own, beside how it goes on here."""
        here, branch = self.current, self.branch
        self._idle()
        check_length(self.loaded, int(branch.state.next_position.max()), steps)
        made = self.elsewhere.go_on(branch.state, where, steps, work or Work(where, steps))
        begun, end = branch.state.tokens, branch.state.tokens + len(made.tokens)
        own = (*branch.own, *range(begun, end))
        name = self._add(branch.then(self._read(branch.state, made.tokens), own))
        self.answers.went = Place(name, self.branches[name].state), here, made
        return made

    def save(self, name: str) -> dict[str, Any]:
        """Write the current branch under a new name, with its generator and sampler; the manifest."""
        self._idle()
        branch = self.branch
        generation = {"sampler": branch.sampler().document(), "own": list(branch.own)}
        manifest = self.store.save(branch.state.document("generation", **generation), name)
        self._put(replace(branch, state=replace(branch.state, parent=manifest["id"])))
        return manifest

    def load(self, name: str) -> None:
        """Restore `name` as another branch, identity compared."""
        self.restore(self.store.load(name), self.store.folder / name)

    def restore(self, state: State, where: Path) -> None:
        """Go on from a stored State that was read from `where`."""
        if state.batch != 1:
            raise InputProblem("the page follows one thought; this snapshot holds several.")
        self._idle()
        branch = self._identified(state, where)
        self._add(branch.then(branch.state))
        self.sampling = branch.sampling

    def _identified(self, state: State, where: Path, notes: dict[str, Any] | None = None) -> Branch:
        """The branch of a stored State. Raises RestoreRefused where it is of another model."""
        with MODEL:
            state, _ = identity_check(self._session, state, where)
        sampling = saved_settings(state.documents, str(where)) or SamplingConfig(name="greedy")
        notes = notes or {"own": state.documents["generation"].get("own", ())}
        own = tuple(i for i in notes.get("own", ()) if isinstance(i, int))
        growth = tuple(Growth(*row) for row in notes.get("growth", ()))
        prompt = str(notes.get("prompt", ""))
        return Branch(state.to(self.loaded.device), sampling, own, growth, prompt)

    def judging_time(self, steps: int) -> str:
        """Estimated cost of a verdict, where it is long; else empty."""
        tokens, settings = self.branch.state.tokens, self.cfg.compare
        if tokens > settings.limit:
            return ""
        ahead = cost(self.loaded, 1, tokens + steps, settings.oracle, (1,) * steps)
        return f", {ahead}" if ahead.worth_saying else ""

    def verdict(self, steps: int, work: Work | None = None) -> Proof:
        """Save the current branch, restore it, and judge `steps` tokens of what comes back."""
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
        self.answers.judged[self.current] = Place(self.current, branch.state), made
        return made

    def keep(self, autosave: Autosave) -> None:
        """Take over the branches in `autosave`, and write there from now on. What cannot be taken over
        stays there."""
        self._autosave = autosave
        current, kept = autosave.read()
        for name, (state, notes) in kept.items():
            try:
                self.branches[name] = self._identified(state, autosave.folder, notes)
            except HarnessError as problem:
                log.warning("branch %s was not restored: %s", name, problem)
                autosave.skip(name, notes, _misfit(problem, str(notes.get("model") or "")))
        self.typed = autosave.typed
        if self.branches:
            self.current = current if current in self.branches else next(iter(self.branches))
            self.sampling = self.branch.sampling

    def _answering(self, state: State) -> State:
        """`state` with the logits of what it still holds; `fresh` says whether it could be asked."""
        with MODEL:
            made = answering(self.loaded, state, self.cfg.cache)
        self.fresh = made is not None
        return state if made is None else made.with_layers(tuple(map(compact, made.layers)))

    def _fed(self, state: State, ids: torch.Tensor) -> State:
        wanted = EVERY_QUERY if bright(state) else None
        with MODEL:
            grown = feed(self.loaded, state, ids, self.cfg.cache, wanted).state
        return grown.with_layers(tuple(map(compact, grown.layers)))

    @property
    def piece(self) -> int:
        """Tokens read at once: fewer for a larger model, so that nobody waits long."""
        return min(PIECE, max(FEW, int(LIGHT / self.loaded.parameters)))

    def _read(self, state: State, ids: Sequence[int], work: Work | None = None) -> State:
        """`state` with `ids` fed to it, piece by piece."""
        for start in range(0, len(ids), self.piece):
            piece = ids[start : start + self.piece]
            state = self._fed(state, torch.tensor([list(piece)]))
            if work is not None:
                work.advance(len(piece))
        return state


def _misfit(problem: HarnessError, model: str) -> str:
    """Why an autosaved branch cannot be restored. model: its own, where known."""
    rows = getattr(problem, "differences", None) or ()
    if rows and all(str(row.field).startswith("proof") for row in rows):
        return "fails its proof: its keys and values do not give its logits"
    return f"belongs to another model{f' ({model})' if model else ''}"
