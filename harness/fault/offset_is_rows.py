"""After an eviction the offset is the number of rows that were kept."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class OffsetIsRows(Fault, element=3, field="offset_rows"):
    def state(self, state: State, aid: Aid) -> State:
        first, rest = torch.arange(4), torch.arange(state.kept_tokens // 2, state.kept_tokens)
        pruned = edit.select(state, torch.cat([first, rest]))
        pruned = pruned.document("kv_format", pruned=[{"policy": "sink_window"}])
        rows = torch.full_like(pruned.next_position, pruned.kept_tokens)
        return replace(pruned, next_position=rows)
