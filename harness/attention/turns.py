"""How a layer's queries and keys turn with their position, found by asking the model.

A rotary key at position p is R(p) k; moved to position q it becomes R(q - p) R(p) k, in float32 or
better, with the inverse frequencies that the model's own modules hold. Which frequencies and which
layout a layer uses is not looked up in a list of models: it is found by asking the model for the keys
of one token at several positions and keeping the rotation that explains them. Keys that do not depend
on the position (ALiBi, no positions) need no turning; keys that change in any other way (learned
positions) cannot be moved. Source: RoFormer (Su et al. 2021).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import UnsupportedModel


@dataclass(frozen=True)
class Turn:
    """How a layer's keys turn with position: `layout` is still, half or interleaved.

    frequencies: `[rotary_dim / 2]` radians per position, as the model holds them; empty when still.
    Angles are formed in the frequencies' own dtype, as the model forms them, so that the rounding
    of a large position cancels; their difference is taken in float64.
    """

    layout: str
    frequencies: torch.Tensor

    def __call__(self, key: torch.Tensor, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """`key` `[batch, kv_heads, tokens, head_dim]` moved from `old` to `new`, each `[batch, tokens]`
        or `[batch, kv_heads, tokens]`."""
        if self.layout == "still":
            return key
        angle = self._angle(new) - self._angle(old)
        angle = angle if new.dim() == 3 else angle[:, None]
        return self._turned(key, angle.cos(), angle.sin())

    def averaged(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """`rows` `[batch, heads, ..., head_dim]` moved from 0 to each of `positions` `[batch, n]`, the
        mean of all n."""
        if self.layout == "still":
            return rows
        angle = self._angle(positions)
        inner = (1,) * (rows.dim() - 2)
        cos, sin = (t.mean(1).unflatten(0, (-1, *inner)) for t in (angle.cos(), angle.sin()))
        return self._turned(rows, cos, sin)

    def _turned(self, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = self.frequencies.shape[0]
        work = torch.promote_types(key.dtype, torch.float32)
        cos, sin = cos.to(work), sin.to(work)
        part, rest = key[..., : 2 * half].to(work), key[..., 2 * half :]
        if self.layout == "half":
            a, b = part[..., :half], part[..., half:]
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        else:
            a, b = part[..., 0::2], part[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        return torch.cat([turned.to(key.dtype), rest], dim=-1)

    def _angle(self, positions: torch.Tensor) -> torch.Tensor:
        frequencies = self.frequencies.to(positions.device)
        return (positions[..., None].to(frequencies.dtype) * frequencies).double()


def turns(
    model: Any, keys_at: Callable[[int], Sequence[torch.Tensor | None]], last: int
) -> list[Turn | None]:
    """How every layer's keys turn, found by probing. None for layers without keys.

    keys_at: per layer the key `[1, kv_heads, 1, head_dim]` of one fixed token alone at a position.
    last: the largest position that matters. Raises UnsupportedModel where no rotation explains
    what a layer does. Mutates nothing.
    """
    places = sorted({0, 1, min(7, last), last} - {-1})
    probes = {p: keys_at(p) for p in places}
    candidates = [Turn("still", torch.empty(0))]
    for frequencies in frequencies_of(model):
        candidates += [Turn("half", frequencies), Turn("interleaved", frequencies)]
    turns: list[Turn | None] = []
    for index, start in enumerate(probes[0]):
        if start is None:
            turns.append(None)
            continue
        there = {p: key for p in places if (key := probes[p][index]) is not None}
        best = min(candidates, key=lambda turn: _gap(turn, there))
        if _gap(best, there) > float(torch.finfo(start.dtype).eps) ** 0.5:
            raise UnsupportedModel(
                f"the keys of layer {index} change with the position in "
                "a way that no rotation undoes (learned positions, or frequencies that depend on "
                "the length), so they cannot be moved. Use prune.positions=original."
            )
        turns.append(best)
    return turns


def frequencies_of(model: Any) -> list[torch.Tensor]:
    """The distinct inverse frequencies that the model's modules hold, float64."""
    distinct: list[torch.Tensor] = []
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if not name.endswith("inv_freq") or name.endswith("original_inv_freq"):
                continue
            value = buffer.detach().clone()
            if not any(f.shape == value.shape and bool((f == value).all()) for f in distinct):
                distinct.append(value)
    return distinct


def _gap(turn: Turn, keys: dict[int, torch.Tensor]) -> float:
    """Largest relative error of explaining the key at each place by turning the one at 0."""
    start = keys[0]
    if 2 * turn.frequencies.shape[0] > start.shape[-1]:
        return float("inf")
    at = torch.zeros(1, 1, dtype=torch.int64, device=start.device)
    return max(float((turn(start, at, at + p) - k).norm() / k.norm()) for p, k in keys.items())
