"""`prune=sink_window`: the first few tokens and the most recent ones.

Source: StreamingLLM (Xiao et al. 2023): attention parks on the first tokens, so they must stay.
"""

from math import inf

import torch

from harness.config import PruneConfig, at_least
from harness.errors import InputProblem
from harness.prune.base import Policy
from harness.snapshot.state import LayerState


class SinkWindow(Policy):
    """Keeps `prune.sinks` leading tokens; the rest of the budget is a window at the end."""

    def __init__(self, settings: PruneConfig):
        super().__init__(settings)
        at_least("prune.sinks", settings.sinks, 0)

    def check(self) -> None:
        if self.settings.tokens is not None:
            self._meets(self.settings.tokens, self.settings.sinks)

    def score(self, layer: LayerState, rank: torch.Tensor, keep: int) -> torch.Tensor:
        self._meets(keep, min(self.settings.sinks, layer.kept))
        return rank.double().masked_fill(rank < self.settings.sinks, inf)

    def _meets(self, keep: int, sinks: int) -> None:
        if keep < sinks:
            raise InputProblem(
                f"the prune budget is {keep} tokens, fewer than prune.sinks={self.settings.sinks}. "
                "Give a larger budget or fewer sinks."
            )
