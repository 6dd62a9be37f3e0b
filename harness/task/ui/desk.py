"""The work behind the page: one person's thought as branches that are stepped, pruned, paused and
compared. No page in here; every act replaces a branch's immutable State by a new one.

The attention that tokens receive is observed through the library's registry, which is one per
process: let one act run at a time (the page's queue does).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import torch

from harness.capture import check_length
from harness.capture.observe import observe_again
from harness.compare import metrics
from harness.config import SamplingConfig, option
from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.pipeline.prune import policy_of
from harness.pipeline.restore import identity_check
from harness.pipeline.sampling import saved_settings
from harness.pipeline.session import Session
from harness.pipeline.step import feed, joined
from harness.prune.base import EVERY_QUERY
from harness.prune.registry import names as policies
from harness.snapshot.state import LayerState, State, aligned
from harness.task.ui.shelf import Shelf
from harness.task.ui.verdict import Proof, proven
from harness.tokenizer.policy import continuation, encode

POLICIES = tuple(p for p in policies() if p != "chain")
SEEN = option("prune", "heavy_hitter", ratio=1.0)  # so that the capture records brightness


@dataclass(frozen=True)
class Growth:
    """The cache after one act: tokens sent so far, tokens held, bytes of K/V."""

    tokens: int
    kept: int
    kv_bytes: int


@dataclass(frozen=True)
class Branch:
    """One line of thought. rng of the state: the generator as it stands. own: places in the token
    buffer that the model chose. sampling: a SamplingConfig. growth: one entry per act."""

    state: State
    sampling: Any
    own: tuple[int, ...] = ()
    growth: tuple[Growth, ...] = ()

    def sampler(self) -> Sampler:
        """A sampler that goes on where this branch's generator stands."""
        return Sampler(self.sampling, rng=self.state.rng)

    def then(self, state: State, own: tuple[int, ...] | None = None) -> "Branch":
        """This branch with a new State, and the cache's size noted."""
        noted = Growth(state.tokens, state.kept_tokens, state.kv_bytes)
        own = self.own if own is None else own
        return replace(self, state=state, own=own, growth=(*self.growth, noted))


@dataclass(frozen=True)
class Comparison:
    """Two branches' next-token logits. at: how many tokens each had when they were compared.
    parted: first place where their tokens differ, or None.
    rows: `(id, text, probability in a, probability in b)`, of the most probable tokens of either."""

    a: str
    b: str
    at: tuple[int, int]
    parted: int | None
    metrics: dict[str, Any]
    rows: list[tuple[int, str, float, float]]


class Desk:
    """session: the model, shared and only read. shelf: where snapshots go. scratch: a directory that
    the verdict's own snapshot may use. `branches` and `current` are this person's alone."""

    def __init__(self, session: Session, shelf: Shelf, scratch: Path):
        self.loaded, self.cfg = session.loaded, session.cfg
        self._session = replace(session, cfg=replace(session.cfg, prune=SEEN), times={})
        self.shelf, self.scratch = shelf, scratch
        self.branches: dict[str, Branch] = {}
        self.current = ""
        self.sampling = session.sampling

    @property
    def branch(self) -> Branch:
        """The current branch. Raises InputProblem before there is one."""
        if not self.branches:
            raise InputProblem(
                "there is no thought yet. Type a prompt and start, or load a snapshot."
            )
        return self.branches[self.current]

    def begin(self, text: str) -> None:
        """Prefill `text` under the tokenizer policy; replaces every branch of this desk."""
        row = encode(self.cfg.tokenizer, self.loaded.tokenizer, text)
        sampler = Sampler(self.sampling, self.cfg.seed)
        self._only(self._session.capture([row], sampler).state)

    def say(self, text: str) -> int:
        """Feed `text`, exactly as typed, to the current branch; return how many tokens it has."""
        branch = self.branch
        ids = continuation(self.cfg.tokenizer, self.loaded.tokenizer, text).ids
        if not ids:
            raise InputProblem("there is no text to add. Type some first.")
        check_length(self.loaded, int(branch.state.next_position.max()), len(ids))
        fed = self._fed(branch.state, torch.tensor([ids])).document("generation", begun=None)
        self._put(branch.then(fed))
        return len(ids)

    def step(self) -> int:
        """Choose the next token of the current branch and feed it; return its id."""
        branch, sampler = self.branch, self.branch.sampler()
        sampler.begin(branch.state)
        token = sampler.choose(branch.state.logits, branch.state.token_ids)
        state = sampler.paused(self._fed(branch.state, token))
        self._put(branch.then(state, (*branch.own, branch.state.tokens)))
        return int(token)

    def sample(self, name: str, **settings: Any) -> None:
        """How the current branch chooses from now on; its generator stays where it is."""
        self.sampling = SamplingConfig(name=name, **settings)
        if self.branches:
            self._put(replace(self.branch, sampling=self.sampling))

    def prune(self, policy: str, keep: int) -> int:
        """Keep at most `keep` tokens per layer of the current branch; return how many went."""
        branch, before = self.branch, self.branch.state
        budget = {"tokens": keep, "ratio": None, "positions": "original"}
        ours = self.cfg.prune if self.cfg.prune.name == policy else option("prune", policy)
        settings = replace(ours, **budget)
        chosen = policy_of(settings)
        assert chosen is not None
        seen = before
        if chosen.observes is not None and (chosen.observes != EVERY_QUERY or not _bright(before)):
            seen = observe_again(self.loaded, before, chosen.observes)
        small = chosen.prune(seen)
        layers = [_rescored(old, new) for old, new in zip(before.layers, small.layers, strict=True)]
        self._put(branch.then(small.with_layers(tuple(map(joined, layers)))))
        return before.kept_tokens - self.branch.state.kept_tokens

    def save(self, name: str) -> dict[str, Any]:
        """Write the current branch under a new name, generator and sampler with it; its manifest."""
        branch = self.branch
        generation = {"sampler": branch.sampler().document(), "own": list(branch.own)}
        manifest = self.shelf.save(branch.state.document("generation", **generation), name)
        self._put(replace(branch, state=replace(branch.state, parent=manifest["id"])))
        return manifest

    def load(self, name: str) -> None:
        """Restore `name`, identity compared, as the only branch: the next token will be the one that
        would have come when it was saved. Raises RestoreRefused, SnapshotInvalid, InputProblem."""
        self.restore(self.shelf.load(name), self.shelf.folder / name)

    def restore(self, state: State, where: Path) -> None:
        """Go on from a stored State that was read from `where`."""
        if state.batch != 1:
            raise InputProblem("the page follows one thought; this snapshot holds several.")
        identity_check(self._session, state, where)
        held = state.documents["generation"]
        self.sampling = saved_settings(state.documents, str(where)) or SamplingConfig(name="greedy")
        own = tuple(i for i in held.get("own", ()) if isinstance(i, int))
        self._only(state.to(self.loaded.device), own)

    def fork(self) -> str:
        """A second branch from where the current one stands, sharing all of its memory; its name."""
        held = self.branch
        free = [letter for letter in ascii_uppercase if letter not in self.branches]
        if not free:
            raise InputProblem("26 branches are as many as fit. Start again, or load a snapshot.")
        self.branches[free[0]] = held
        self.current = free[0]
        return free[0]

    def switch(self, name: str) -> None:
        """Make `name` the current branch."""
        if name not in self.branches:
            raise InputProblem(f"there is no branch {name}.")
        self.current, self.sampling = name, self.branches[name].sampling

    def compare(self, a: str, b: str, top: int = 8) -> Comparison:
        """The logits that follow branch `a` beside those that follow branch `b`."""
        if a not in self.branches or b not in self.branches or a == b:
            raise InputProblem("comparing needs two branches. Branch first, then take them apart.")
        one, two = self.branches[a].state, self.branches[b].state
        ids = one.logits.argmax(-1, keepdim=True)
        found = metrics.compare(two.logits[:, None], one.logits[:, None], ids)
        p, q = (s.logits[0].double().softmax(-1) for s in (one, two))
        best = torch.maximum(p, q).topk(min(top, len(p))).indices.tolist()
        rows = [(i, self.text([i]), float(p[i]), float(q[i])) for i in best]
        return Comparison(a, b, (one.tokens, two.tokens), _parted(one, two), found, rows)

    def verdict(self, steps: int) -> Proof:
        """Save the current branch, restore it, and judge `steps` tokens of what comes back."""
        branch = self.branch
        cfg = replace(self._session.cfg, sampling=branch.sampling)
        return proven(replace(self._session, cfg=cfg), branch.state, self.scratch, steps)

    def likely(self, top: int = 10) -> list[tuple[int, str, float]]:
        """`(id, text, probability)` of the most probable next tokens, as the sampler sees them."""
        branch = self.branch
        p = branch.sampler().probabilities(branch.state.logits, branch.state.token_ids)[0]
        best = p.topk(min(top, len(p)))
        return [(i, self.text([i]), v) for i, v in zip(best.indices.tolist(), best.values.tolist())]

    def brightness(self) -> list[float] | None:
        """Attention that each token of the buffer received, summed over queries and heads, the mean
        of the layers that hold it; None where this model does not let it be observed."""
        state, holders = self.branch.state, self.holders()
        if holders is None or not _bright(state):
            return None
        total = torch.zeros(state.tokens, dtype=torch.float64)
        for layer in state.layers:
            if layer.segments:
                assert layer.received is not None
                each = layer.received[0].sum(-2).double().cpu()
                at = layer.positions[0].cpu().expand(each.shape)
                real = at >= 0
                total.index_add_(0, at[real], each[real])
        return (total / holders.clamp(min=1)).tolist()

    def holders(self) -> torch.Tensor | None:
        """`[tokens]` int64: how many layers still hold each token of the buffer, in any KV head; None
        once positions were counted anew, so that kept tokens cannot be found in the buffer."""
        state = self.branch.state
        if int(state.next_position[0]) != state.tokens:
            return None
        held = torch.zeros(state.tokens, dtype=torch.int64)
        for layer in state.layers:
            if layer.segments:
                at = layer.positions[0].cpu().flatten().unique()
                at = at[at >= 0]
                held.index_add_(0, at, torch.ones_like(at))
        return held

    def text(self, ids: list[int]) -> str:
        """Text of `ids`, special tokens shown."""
        return self.loaded.tokenizer.decode(ids, clean_up_tokenization_spaces=False)

    def _fed(self, state: State, ids: torch.Tensor) -> State:
        wanted = EVERY_QUERY if _bright(state) else None
        grown = feed(self.loaded, state, ids, self.cfg.cache, wanted).state
        return grown.with_layers(tuple(map(joined, grown.layers)))

    def _only(self, state: State, own: tuple[int, ...] = ()) -> None:
        self.branches = {"A": Branch(state, self.sampling).then(state, own)}
        self.current = "A"

    def _put(self, branch: Branch) -> None:
        self.branches[self.current] = branch


def _bright(state: State) -> bool:
    """Whether every layer that holds tokens carries the attention they received."""
    held = [layer for layer in state.layers if layer.segments]
    return bool(held) and all(layer.received is not None for layer in held)


def _rescored(old: LayerState, new: LayerState) -> LayerState:
    """`new`, a selection of `old`'s tokens, with the brightness these had in `old`."""
    if old.received is None or not new.segments:
        return replace(new, received=None)
    if not new.per_head:
        at = torch.searchsorted(old.positions[0].contiguous(), new.positions[0].contiguous())
        return replace(new, received=old.received[..., at])
    one, two = aligned([old.positions, new.positions])
    at = torch.searchsorted(one.contiguous(), two.contiguous()).clamp(max=old.kept - 1)
    received = old.received
    if received.dim() == 3:  # summed over the heads: format 1
        received = received[:, None].expand(-1, at.shape[1], -1, -1)
    at = at[:, :, None].expand(-1, -1, received.shape[2], -1)
    return replace(new, received=received.gather(3, at))


def _parted(a: State, b: State) -> int | None:
    """First place where the two token buffers differ; None when they are the same."""
    one, two = a.token_ids[0].tolist(), b.token_ids[0].tolist()
    for place, (x, y) in enumerate(zip(one, two)):
        if x != y:
            return place
    return None if len(one) == len(two) else min(len(one), len(two))
