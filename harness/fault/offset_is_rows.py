"""After an eviction the offset is the number of rows that were kept."""

from dataclasses import replace

import torch

from harness.fault.base import Aid, Fault, State, edit


class OffsetIsRows(Fault, element=3, field="offset_rows"):
    def state(self, state: State, aid: Aid) -> State:
        first, rest = torch.arange(4), torch.arange(state.kept_tokens // 2, state.kept_tokens)
        kept = edit.select(state, torch.cat([first, rest]))
        kept = kept.document("kv_format", pruned=[{"policy": "sink_window"}])
        rows = torch.full_like(kept.next_position, kept.kept_tokens)
        return replace(kept, next_position=rows)
