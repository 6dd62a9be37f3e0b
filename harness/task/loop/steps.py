"""One step of the founding loop, and the trace it leaves."""

import json
import resource
import time
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import torch

from harness.attention.turns import Turn
from harness.config import PruneConfig
from harness.model.sampler import Sampler
from harness.pipeline.prune import moves, policy_of, scored, without_scores
from harness.pipeline.session import Session
from harness.pipeline.step import feed, joined
from harness.prune.base import Policy, gathered
from harness.prune.positions import reindexed
from harness.snapshot.state import State


class Loop:
    """The loop between two steps. `state` is replaced at every step and never written to.

    budget: tokens each layer holds at most after a step (with `prune.at=N` up to N - 1 more), None
    without pruning. A ratio is of what
    the loop started with. mutated: steps in which the past was written to. seconds: per step.
    """

    def __init__(self, session: Session, state: State):
        self.session, self.loaded, settings = session, session.loaded, session.cfg.prune
        self.seconds: list[float] = []
        self.mutated, self.copied = 0, 0.0
        self._memory = [_resident()]
        self._every = 1 if settings.at == "prefill" else int(settings.at)
        self.budget = _budget(settings, state)
        self.policy = self._policy()
        self.turns: list[Turn | None] | None = None
        if self.policy is None:
            self.state = state
            return
        if settings.positions == "reindexed":
            self.turns = moves(self.loaded, state)
        if self.policy.observes is None:
            state = without_scores(state)
        else:
            state = scored(self.loaded, self.policy, state)
        self.state, _ = self._patch(_declared(state, settings, self.budget))

    def rehearse(self) -> None:
        """One step beside the loop, over a copy of its state and kept nowhere: what is compiled or touched first is no
        part of the first token's seconds, and what the process holds is counted from here on."""
        other = copy(self)
        other.seconds, other.policy = [], self._policy()
        other.state = self.state.with_layers(deepcopy(self.state.layers))
        sampler = self.session.sampler(other.state)
        sampler.begin(other.state)
        other.step(sampler)
        self._memory = [_resident()]

    def step(self, sampler: Sampler) -> dict[str, Any]:
        """Generate one token, score, decide, patch; return the step's row of the trace."""
        start = time.perf_counter()
        logits, ids = self.state.logits, self.state.token_ids
        token = sampler.choose(logits, ids)
        probabilities = sampler.probabilities(logits, ids)[0]
        self.state, culled = self._patch(self._generated(token))
        self.seconds.append(time.perf_counter() - start)
        if len(self.seconds) % 100 == 0:
            self._memory.append(_resident())
        top = probabilities.topk(min(self.session.cfg.task.top, len(probabilities)))
        return {
            "token": int(token),
            "text": self.loaded.tokenizer.decode([int(token)]),
            "probability": float(probabilities[int(token)]),
            "top": [[int(i), float(p)] for i, p in zip(top.indices, top.values, strict=True)],
            "kept": self.state.kept_tokens,
            "next_position": int(self.state.next_position[0]),
            "culled": culled,
        }

    def pace(self) -> dict[str, Any]:
        """Median seconds per step and resident bytes, at the beginning and at the end."""
        part = max(len(self.seconds) // 10, 1)
        first, last = median(self.seconds[:part]), median(self.seconds[-part:])
        return {
            "first_tenth_s": first,
            "last_tenth_s": last,
            "time_ratio": last / first,
            "resident_bytes": [*self._memory, _resident()],
            "mutated_steps": self.mutated,
        }

    def _policy(self) -> Policy | None:
        settings = self.session.cfg.prune
        return policy_of(replace(settings, tokens=self.budget, ratio=None))

    def _generated(self, token: torch.Tensor) -> State:
        """A State with `token` `[1, 1]` fed, and the attention it gave added to the scores."""
        wanted = None if self.policy is None else self.policy.observes
        step = feed(self.loaded, self.state, token, self.session.cfg.cache, wanted)
        self.mutated += step.mutated
        self.copied += step.bytes_copied
        return step.state

    def _patch(self, state: State) -> tuple[State, list[list[int]]]:
        """The only place where the cache changes: what is over the budget goes, a new State comes.

        Also returns, per layer, the positions that were culled.
        """
        if self.policy is None or state.kept_tokens < (self.budget or 0) + self._every:
            return state.with_layers(tuple(map(joined, state.layers))), [[] for _ in state.layers]
        state = scored(self.loaded, self.policy, state)
        layers, culled = [], []
        for layer, index in zip(state.layers, self.policy.choose(state), strict=True):
            rest = layer if index is None else joined(gathered(layer, index))
            positions = set(rest.positions[0].flatten().tolist()) if rest.segments else set()
            before = set(layer.positions[0].flatten().tolist()) if positions else set()
            gone = sorted(p for p in before - positions if p >= 0)  # gone from every head
            layers.append(rest)
            culled.append(gone)
        small = state.with_layers(tuple(layers))
        return (small if self.turns is None else reindexed(small, self.turns)), culled


class Trace:
    """`trace.json`: a JSON list with one object per step, whole at every `flush`."""

    def __init__(self, path: Path):
        self._file: BinaryIO = path.open("wb")
        self._file.write(b"[]\n")
        self._rows: list[bytes] = []
        self._any = False

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(json.dumps(row, ensure_ascii=False, allow_nan=False).encode())

    def flush(self) -> None:
        """Write what was added over the closing bracket, then the bracket again."""
        if self._rows:
            self._file.seek(-3 if self._any else -2, 2)
            head = b",\n" if self._any else b"\n"
            self._file.write(head + b",\n".join(self._rows) + b"\n]\n")
            self._any, self._rows = True, []
        self._file.flush()

    def close(self) -> None:
        self.flush()
        self._file.close()


def _budget(settings: PruneConfig, state: State) -> int | None:
    """Tokens to hold. A ratio counts once, when the loop begins; its own snapshots remember it."""
    if settings.name == "none":
        return None
    if settings.tokens is not None:
        return settings.tokens
    loop = state.documents["generation"].get("loop", {})
    if (loop.get("policy"), loop.get("ratio")) == (settings.name, settings.ratio):
        return loop["budget"]
    return max(round((settings.ratio or 0) * state.kept_tokens), 1)


def _declared(state: State, settings: PruneConfig, budget: int | None) -> State:
    """`state` with the loop's settings in its documents, so that a snapshot tells them."""
    ratio = settings.ratio if settings.tokens is None else None
    loop = {"policy": settings.name, "budget": budget, "ratio": ratio}
    record = {
        "policy": settings.name,
        "budget": {"tokens": budget},
        "kept_tokens": budget,
        "positions": settings.positions,
        "at": "every step of a loop",
    }
    before = state.documents["kv_format"].get("pruned", [])
    if not any(record.items() <= stage.items() for stage in before):
        record["from_tokens"] = state.tokens
        state = state.document("kv_format", pruned=[*before, record])
    return state.document("generation", loop=loop)


def _resident() -> int:
    """Bytes of this process in memory now (the peak where the system does not tell)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
