"""The naive twin: every turn processes the whole chat again, from the first token."""

import time
from typing import Any

import torch

from harness.capture import new_cache, positions_of, prefill


def answer(loaded: Any, ids: torch.Tensor, limit: int, ends: set[int]) -> tuple[list[int], float]:
    """Greedy answer to all of `ids` `[1, tokens]` and the seconds it took. Keeps nothing."""
    start = time.perf_counter()
    ids = ids.to(loaded.device)
    mask = torch.ones_like(ids)
    cache, position = new_cache(loaded), ids.shape[1]
    logits = prefill(loaded, ids, mask, positions_of(mask), cache)[:, -1]
    chosen: list[int] = []
    while len(chosen) < limit and (not chosen or chosen[-1] not in ends):
        token = logits.argmax(-1, keepdim=True)
        chosen.append(int(token))
        where = torch.tensor([[position]], device=ids.device)
        logits = loaded.forward(token, where, None, cache)[:, -1]
        position += 1
    return chosen, time.perf_counter() - start
