"""From scores to the indices that stay: the highest, per row, per KV head, or across heads.

An index of -1 is a place that stays empty: a head that keeps fewer tokens than the widest.
"""

from collections.abc import Sequence
from typing import Any

import torch

from harness.snapshot.state import LayerState

SAFEGUARD = 0.2  # adaptive: the share of the mean budget that every head keeps (the paper's alpha)


def highest(score: torch.Tensor, keep: int) -> torch.Tensor:
    """Indices `[..., keep]` of the highest of `score` `[..., kept]`, in rising order; of equals the
    later token stays."""
    last = score.shape[-1] - 1
    order = last - score.flip(-1).argsort(dim=-1, descending=True, stable=True)
    return order[..., :keep].sort(dim=-1).values


def adaptive(score: torch.Tensor, keep: int) -> torch.Tensor:
    """Indices `[batch, kv_heads, widest]` of the `kv_heads * keep` highest of `score` `[batch,
    kv_heads, kept]` together, each head's own best first; -1, on the left, fills the other heads.

    Source: Ada-KV (Feng et al. 2024): heads whose attention is spread get what the others spare.
    """
    batch, heads, kept = score.shape
    last = kept - 1
    order = last - score.flip(-1).argsort(dim=-1, descending=True, stable=True)
    safe = max(int(SAFEGUARD * keep), 1)
    ranked = score.gather(-1, order)  # falling, per head
    ranked[..., :safe] = float("inf")  # never -inf: padding is masked below
    chosen = highest(ranked.flip(-1).reshape(batch, -1), heads * keep)
    counts = torch.zeros(batch, heads, dtype=torch.int64, device=score.device)
    counts.scatter_add_(1, chosen // kept, torch.ones_like(chosen))
    widest = int(counts.max())
    taken = torch.arange(widest, device=score.device) < counts[..., None]
    best = order[..., :widest]
    taken = taken & (score.gather(-1, best) > float("-inf"))
    return torch.where(taken, best, -1).sort(dim=-1).values


def shared(layers: Sequence[LayerState], scores: list[torch.Tensor | None]) -> list[Any]:
    """The mean score over the layers that hold the same tokens, given to each of them."""
    groups: list[tuple[torch.Tensor, torch.Size, list[int]]] = []
    for i, layer in enumerate(layers):
        score = scores[i]
        if score is None:
            continue
        for positions, shape, members in groups:
            alike = shape == score.shape and positions.shape == layer.positions.shape
            if alike and bool((positions == layer.positions).all()):
                members.append(i)
                break
        else:
            groups.append((layer.positions, score.shape, [i]))
    result = list(scores)
    for _, _, members in groups:
        mean = torch.stack([scores[i] for i in members]).mean(0)  # type: ignore[misc]
        for i in members:
            result[i] = mean
    return result


def composed(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The indices `new` of what the indices `old` chose, as indices of what `old` chose from."""
    if new.dim() == 3 and old.dim() == 2:
        old = old[:, None].expand(-1, new.shape[1], -1)
    if old.dim() == 3 and new.dim() == 2:
        new = new[:, None].expand(-1, old.shape[1], -1)
    return torch.where(new < 0, -1, old.gather(-1, new.clamp(min=0)))
