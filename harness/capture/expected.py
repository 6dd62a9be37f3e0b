"""The attention that every key can expect from queries yet to come, estimated while the model runs.

Queries are turned back to position 0, and there their mean and covariance are counted, per head. Turned
on to the positions that follow, the mean of all turns, they say what a later query looks like: for a
Gaussian query q, E exp(s q.k) = exp(s mu.k + s^2 k' Sigma k / 2).
Source: Expected Attention (Devoto et al. 2025).
"""

from typing import Any

import torch

from harness.attention.turns import Turn

FIRST = 4  # tokens at the front, whose queries and keys are outliers: neither counted nor rated
FUTURE = 512  # positions that later queries are expected at


class Expectation:
    """As an Observation: `layers` says, per layer, `[batch, kv_heads, 1, keys]` float32.

    turns: how each layer's queries turn with position. No query is kept, only their moments; of the
    keys, those of the latest call.
    """

    def __init__(self, turns: list[Turn | None]):
        self.turns = turns
        self.positions: torch.Tensor | None = None  # [batch, new] of the call that runs
        self._moments: dict[int, list[torch.Tensor]] = {}
        self._keys: dict[int, tuple[torch.Tensor, torch.Tensor, float]] = {}

    def add(
        self,
        index: int,
        query: torch.Tensor,
        key: torch.Tensor,
        mask: Any,
        scale: float | None,
        softcap: float | None,
        sinks: Any,
    ) -> None:
        """One attention call, as of an Observation; what bends the scores is left out of account."""
        batch, _, new, dim = query.shape
        at = self.positions
        if at is None or at.shape[-1] != new:
            at = torch.arange(new, device=query.device)[None] + key.shape[2] - new
        at = at.expand(batch, -1)
        turn = self.turns[index]
        flat = query if turn is None else turn(query.double(), at, torch.zeros_like(at))
        flat = flat.double() * (at >= FIRST)[:, None, :, None]
        counted = (at >= FIRST).sum(1).double()
        moments = [counted, flat.sum(2), flat.transpose(2, 3) @ flat]
        if (before := self._moments.get(index)) is not None:
            moments = [a + b for a, b in zip(before, moments, strict=True)]
            at = torch.cat([self._keys[index][1], at], dim=1)
        self._moments[index] = moments
        self._keys[index] = key, at, dim**-0.5 if scale is None else scale

    @property
    def layers(self) -> dict[int, torch.Tensor]:
        return {index: self._rated(index) for index in self._keys}

    def _rated(self, index: int) -> torch.Tensor:
        key, at, scale = self._keys[index]
        count, total, squares = self._moments[index]
        count = count.clamp(min=1)[:, None, None]
        mean = total / count
        spread = squares / count[..., None] - mean[..., :, None] * mean[..., None, :]
        turn = self.turns[index]
        if turn is not None:
            ahead = torch.arange(FUTURE, device=at.device) + at[:, -1:] + 1
            mean = turn.averaged(mean, ahead)
            spread = turn.averaged(spread, ahead)
            spread = turn.averaged(spread.transpose(2, 3), ahead).transpose(2, 3)
        kv_heads, keys = key.shape[1], key.shape[2]
        mean, spread = (t.unflatten(1, (kv_heads, -1)) for t in (mean, spread))
        wide = key.double()[:, :, None]
        score = scale * (wide @ mean[..., None])[..., 0]
        score = score + scale**2 / 2 * ((wide @ spread) * wide).sum(-1)
        front = at[:, at.shape[1] - keys :] < FIRST
        score = score.masked_fill(front[:, None, None], float("-inf"))
        weights = score.softmax(-1).nan_to_num(0.0)
        return weights.mean(2, keepdim=True).float()
