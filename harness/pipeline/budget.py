"""`prune.at=N`: a continuation that prunes every N tokens, so that memory stays bounded while it decodes.

Never more than the budget and N tokens are held per layer and KV head. The budget is counted once: what
the state was pruned to, or what the policy leaves of it now.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.cache.base import Decoder, Fingerprint
from harness.cache.registry import decoder as build_decoder
from harness.config import CacheConfig, PruneConfig
from harness.errors import ConfigProblem
from harness.model.loaded import Loaded
from harness.pipeline.prune import moves, pruned, scored
from harness.pipeline.rope_switch import Switching, decoder
from harness.pipeline.step import feed, joined
from harness.prune.base import EXPECTED, gathered
from harness.prune.budget import budget
from harness.prune.positions import reindexed
from harness.prune.registry import policy
from harness.snapshot.state import LayerState, State

# Per layer the positions that a pruning kept, None where it holds none.
Kept = list[torch.Tensor | None]


class Bounded:
    """Stands where a Decoder does. Every State on the way is only read; `decoder` is the latest.

    keep: tokens that a pruning leaves per layer (the mean over heads under `adaptive`). most: the
    largest number of tokens that any layer held after a step. prunings: how many there were; kept: what
    each of them kept. Raises ConfigProblem for branches.

    again: the `kept` of another continuation of `state`, which is then repeated: rounding may decide
    which of two tokens a policy keeps, and nobody scores them twice.
    """

    def __init__(
        self,
        loaded: Loaded,
        state: State,
        cache: CacheConfig,
        settings: PruneConfig,
        again: Sequence[Kept] = (),
    ):
        if cache.branches > 1:
            raise ConfigProblem(
                "prune.at=N follows one continuation per row. Give cache.branches=1."
            )
        history = state.documents["kv_format"].get("pruned")
        self.keep = history[-1]["kept_tokens"] if history else budget(settings, state.kept_tokens)
        self.every = int(settings.at)
        self.policy = policy(replace(settings, tokens=self.keep, ratio=None))
        self.loaded, self.cache, self.most, self.prunings = loaded, cache, 0, 0
        self._turns = moves(loaded, state) if settings.positions == "reindexed" else None
        observes = self.policy.observes
        self._observes = None if observes == EXPECTED or again else observes
        self.kept: list[Kept] = []
        self._again = again
        self._fed, self._copied = 0, 0.0
        self.first: Decoder = build_decoder(loaded, state, cache)
        self.decoder: Decoder = self.first
        if self._observes is not None:  # scores are added up from here on
            state = scored(loaded, self.policy, state)
        self._state = state if history else self._pruned(state)

    @property
    def state(self) -> State:
        return self._state

    @property
    def bytes_copied(self) -> float:
        return self._copied + self.decoder.bytes_copied

    def fingerprint(self, digest: bool = False) -> Fingerprint:
        """Of what was handed in at the beginning."""
        return self.first.fingerprint(digest)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed `ids` `[batch, new]`, N at a time at most; logits `[batch, new, vocab]`."""
        logits = []
        while ids.shape[1]:
            now, ids = ids.split(
                [n := min(self.every - self._fed, ids.shape[1]), ids.shape[1] - n], 1
            )
            logits.append(self._step(now))
            self._fed += n
            self.most = max(self.most, self._held())
            if self._fed == self.every:
                self._state, self._fed = self._pruned(self.commit()), 0
        return torch.cat(logits, 1)

    def commit(self) -> State:
        """The State as it stands now."""
        return self._state if self._observes is not None else self.decoder.commit()

    def account(self) -> dict[str, Any]:
        """For the record: what was promised and what was held."""
        bound = {"every": self.every, "budget": self.keep}
        return {**bound, "most_held": self.most, "prunings": self.prunings}

    def _step(self, ids: torch.Tensor) -> torch.Tensor:
        if self._observes is None:
            return self.decoder.step(ids)
        fed = feed(self.loaded, self._state, ids, self.cache, self._observes)
        self._state, self._copied = fed.state, self._copied + fed.bytes_copied
        return fed.logits

    def _held(self) -> int:
        return self._state.kept_tokens + (self._fed if self._observes is None else 0)

    def _pruned(self, state: State) -> State:
        before = state.documents["kv_format"].get("pruned", [])
        over = bool(self._again) and self.prunings == len(self._again)  # the other one stopped here
        if state.kept_tokens > self.keep and not over:
            if self._again:
                small = _repeated(state, self._again[self.prunings])
            else:
                small = pruned(self.policy, scored(self.loaded, self.policy, state))
            self.kept.append([la.positions if la.segments else None for la in small.layers])
            if self._turns is not None:
                small = reindexed(small, self._turns)
            record = {**small.documents["kv_format"]["pruned"][-1], "at": self.every}
            same = before and before[-1].get("at") == self.every
            history = before if same else [*before, record]
            state = small.with_layers(tuple(map(joined, small.layers)), pruned=history)
            self.prunings += 1
        if self._observes is None:
            self._copied += self.decoder.bytes_copied
            self.decoder = build_decoder(self.loaded, state, self.cache)
        return state


def _repeated(state: State, kept: Kept) -> State:
    """`state` with the tokens at the positions `kept`; nobody writes it down."""
    history = [*state.documents["kv_format"].get("pruned", []), {"positions": "original"}]
    layers = [
        layer if at is None else gathered(replace(layer, received=None), _places(layer, at))
        for layer, at in zip(state.layers, kept, strict=True)
    ]
    return state.with_layers(tuple(layers), pruned=history)


def _places(layer: LayerState, kept: torch.Tensor) -> torch.Tensor:
    """Where the positions `kept` stand in `layer`; -1 for those that stand for nothing."""
    positions = layer.positions
    if positions.dim() < kept.dim():
        positions = positions[:, None].expand(-1, kept.shape[1], -1)
    places = torch.searchsorted(positions.contiguous(), kept.contiguous())
    return places.masked_fill(kept < 0, -1)


def continuation(
    loaded: Loaded,
    state: State,
    cache: CacheConfig,
    settings: PruneConfig,
    again: Sequence[Kept] = (),
) -> Decoder | Bounded | Switching:
    """What continues `state`: a decoder, which prunes as it goes under `prune.at=N`, as its policy says, or
    `again` what another continuation kept."""
    if settings.name == "none" or settings.at == "prefill":
        return decoder(loaded, state, cache)  # type: ignore[no-any-return]
    return Bounded(loaded, state, cache, settings, again)
