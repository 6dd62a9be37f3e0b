"""The indexer's keys did not come back: it picks tokens by an index of zeros."""

import torch

from harness.fault.base import Aid, Fault, State, edit


class IndexerLost(Fault, element=1, cause="indexer", bed="indexed", field="indexer"):
    def state(self, state: State, aid: Aid) -> State:
        return edit.recurrent(
            state, lambda _, t: torch.zeros_like(t) if t.is_floating_point() else t
        )
