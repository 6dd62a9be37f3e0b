"""What rounding alone does to a prefill: the same ids in one piece and in others, nothing wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.capture import new_cache, positions_of, prefill
from harness.capture.layers import layers_of
from harness.compare.spread import Spread, floors, spread, told
from harness.model.loaded import Loaded
from harness.snapshot.state import LayerState

CHUNK = 7  # small enough that few ids have several pieces


@dataclass(frozen=True)
class Noise:
    """layers, logits `[1, vocab]`: of the prefill in one piece. tensors: per layer the largest difference
    that another split makes of each of its tensors; last: of the logits. Never below one rounding of the
    largest number. spread: per layer, of half precision, how far its keys and values are apart as a whole
    (`key rms`, `key along`, ...; see `compare/spread.py`)."""

    layers: list[LayerState]
    logits: torch.Tensor
    tensors: list[dict[str, float]]
    last: float
    spread: list[dict[str, float]]

    @property
    def kv(self) -> float:
        """Of any key or value."""
        return max(
            floors[part] for floors in self.tensors for part in ("key", "value") if part in floors
        )


def noise(loaded: Loaded, ids: torch.Tensor) -> Noise:
    """The noise of `ids` `[1, tokens]`, all of them real, prefilled by the library's own forward."""
    count = ids.shape[1]
    splits = (None, max(count // 4, 1), max(count - 1, 1), min(CHUNK, count))
    (first, logits), *others = [_run(loaded, ids, split) for split in dict.fromkeys(splits)]
    eps = torch.finfo(loaded.dtype).eps
    tensors, spreads = [], []
    for index, layer in enumerate(first):
        most: dict[str, float] = {}
        whole: dict[str, float] = {}
        for name, tensor in named(layer).items():
            most[name] = max(float(tensor.double().abs().max()) * eps, 1e-300)
            seen = []
            for layers, _ in others:
                other = named(layers[index])[name]
                # what slid out is gone
                width = other.shape[2] if name in ("key", "value") else None
                mine = tensor if width is None else tensor[:, :, -width:]
                most[name] = max(most[name], largest(other.double() - mine.double()))
                if width is not None and told(loaded.dtype):
                    seen.append(spread(other, mine, ids.new_ones(1, 1, mine.shape[2]).bool()))
            if seen:
                whole |= named_floors(name, seen, tensor.shape[2], loaded.dtype)
        tensors.append(most)
        spreads.append(whole)
    gaps = [largest(other.double() - logits.double()) for _, other in others]
    return Noise(first, logits, tensors, max(*gaps, largest(logits) * eps), spreads)


def named_floors(
    part: str, seen: Sequence[Spread], tokens: int, dtype: torch.dtype
) -> dict[str, float]:
    """`compare.spread.floors` of one part of a layer, under the names that `Noise.spread` has."""
    return {f"{part} {kind}": floor for kind, floor in floors(seen, tokens, dtype).items()}


def named(layer: LayerState) -> dict[str, torch.Tensor]:
    """Every tensor of a layer by its name."""
    pair = {"key": layer.key, "value": layer.value} if layer.segments else {}
    return pair | dict(layer.recurrent)


def largest(tensor: torch.Tensor) -> float:
    """The largest number of `tensor`, whatever its sign."""
    return float(tensor.detach().double().abs().max())


def _run(loaded: Loaded, ids: torch.Tensor, split: int | None) -> tuple[Any, torch.Tensor]:
    """`(layers, logits [1, vocab])` of one prefill, every row kept where one pass makes it whole."""
    mask, cache = torch.ones_like(ids), new_cache(loaded)
    positions = positions_of(mask)
    logits = prefill(loaded, ids, mask, positions, cache, split)
    return layers_of(cache, positions), logits[:, -1]
