"""`prune=chain`: policies one after the other, each pruning what the one before it left."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from harness.config import PruneConfig, option, shared
from harness.errors import ConfigProblem
from harness.prune.base import Policy
from harness.prune.budget import budget
from harness.prune.choice import composed
from harness.prune.registry import policy
from harness.snapshot.state import LayerState, State

_STAGES_OWN = {"tokens", "ratio", "positions"}


class Chain(Policy):
    """`prune.stages`: mappings of prune keys, each with a `name` and a budget of its own.

    The last stage needs none: it takes the chain's, and no stage before it goes below that. A ratio
    is of what the stage is given.
    """

    def __init__(self, settings: PruneConfig):
        super().__init__(settings)
        self._last_is_ours = False
        if not settings.stages:
            raise ConfigProblem("prune=chain needs prune.stages=[{name: ..., ratio: ...}, ...].")
        self.stages = [self._stage(n, _keys(n, stage)) for n, stage in enumerate(settings.stages)]
        needs = [s.observes for s in self.stages if s.observes is not None]
        if len(set(needs)) > 1:
            raise ConfigProblem(
                "prune.stages: two stages observe attention in different ways. Chain only one of "
                "heavy_hitter and snapkv (or give both the same window)."
            )
        self.observes = needs[0] if needs else None

    def _stage(self, number: int, options: dict[str, Any]) -> Policy:
        for key in {"stages", "positions"} & set(options):
            raise ConfigProblem(f"prune.stages: '{key}' belongs to the chain, not to a stage.")
        if "name" not in options:
            raise ConfigProblem(f"prune.stages: stage {number} needs a name, a policy's.")
        if not {"tokens", "ratio"} & set(options):
            if number < len(self.settings.stages) - 1:
                raise ConfigProblem(f"prune.stages: stage {number} needs tokens or ratio.")
            options |= {"tokens": self.settings.tokens, "ratio": self.settings.ratio}
            self._last_is_ours = True
        ours = {k: getattr(self.settings, k) for k in set(shared("prune")) - _STAGES_OWN}
        rest = {k: v for k, v in options.items() if k != "name"}
        return policy(option("prune", options["name"], **{**ours, **rest}))

    def _run(self, state: State) -> Iterator[tuple[Policy, State]]:
        """Each stage, its budget counted in tokens, with the State that it is given."""
        floor = budget(self.settings, state.kept_tokens) if self._last_is_ours else 0
        for number, stage in enumerate(self.stages):
            keep = floor
            if number < len(self.stages) - 1 or not self._last_is_ours:
                keep = max(budget(stage.settings, state.kept_tokens), floor)
            counted = policy(replace(stage.settings, tokens=keep, ratio=None))
            yield counted, state
            state = counted.prune(state)

    def choose(self, state: State) -> list[torch.Tensor | None]:
        indices: list[torch.Tensor | None] = [None] * len(state.layers)
        for stage, before in self._run(state):
            indices = [
                new if old is None or new is None else composed(old, new)
                for old, new in zip(indices, stage.choose(before), strict=True)
            ]
        return indices

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        raise NotImplementedError("a chain chooses through its stages")

    def allowed(self, state: State) -> list[int]:
        *_, (last, before) = self._run(state)
        return last.allowed(before)

    def record(self, state: State) -> dict[str, Any]:
        stages = [stage.record(before) for stage, before in self._run(state)]
        return {
            "policy": "chain",
            "from_tokens": stages[0]["from_tokens"],
            "kept_tokens": stages[-1]["kept_tokens"],
            "protected": max(s["protected"] for s in stages),
            "positions": "original",
            "stages": stages,
        }


def _keys(number: int, stage: Any) -> dict[str, Any]:
    """The keys of a stage. Raises ConfigProblem for what has none, as a bare name."""
    if not isinstance(stage, Mapping):
        raise ConfigProblem(
            f"prune.stages: stage {number} is {stage!r}: give its keys, {{name: ..., ratio: ...}}."
        )
    return dict(stage)
