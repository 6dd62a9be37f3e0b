"""The tail of a continuation: what would be stored of the tokens it was fed, and whether that is what
the run that was never interrupted holds of them. Logits do not show it: a decoder may attend to one
thing and hand out another, and only whoever goes on from the next snapshot would notice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.cache.base import ending
from harness.capture.layers import INDEXER
from harness.compare.diagnosis import Diagnosis
from harness.model.loaded import Loaded
from harness.pipeline.noise import largest, named, noise
from harness.pipeline.restore import MARGIN
from harness.snapshot.state import LayerState, State

# Per layer by name: key and value `[rows, kv_heads, tokens, head_dim]` of what was fed (of a window
# what it still holds), and the recurrent state after it. Empty where a path is not to be compared.
Tail = tuple[dict[str, torch.Tensor], ...]


def committed(runner: Any) -> list[State]:
    """What a Runner would store of each of its branches; none where it went on from a state whose keys and
    values are meant to be others, a pruned or a quantized one. Mutates nothing."""
    branches = getattr(runner, "branches", 1)
    states = [runner.commit(b) for b in range(branches)] if branches > 1 else [runner.commit()]
    meant = any(state.pruned or state.quantized for state in (runner.state, *states))
    return [] if meant else states


def tail_of(states: Sequence[State], tokens: int) -> Tail:
    """The tail of what was `committed` after `tokens` tokens were fed, copied; empty for nothing."""
    if not states:
        return ()
    each = [[_copied(ending(layer, tokens)) for layer in state.layers] for state in states]
    if not each[1:]:
        return tuple(each[0])
    return tuple(
        {name: torch.stack([la[name] for la in rows], 1).flatten(0, 1) for name in rows[0]}
        for rows in zip(*each, strict=True)
    )


def _copied(layer: LayerState) -> dict[str, torch.Tensor]:
    tensors = named(layer).items()
    return {name: t.clone() for name, t in tensors if t.numel() and not name.startswith(INDEXER)}


@dataclass(frozen=True)
class Outlier:
    """The first number of a tail that leaves the noise: `off` it is, `limit` is allowed. head, token:
    of keys and values; row: where there are several."""

    layer: int
    part: str
    off: float
    limit: float
    row: int = 0
    head: int | None = None
    token: int | None = None

    def __str__(self) -> str:
        where = "" if self.token is None else f" of token {self.token}"
        where += f" in layer {self.layer}"
        where += "" if self.head is None else f", head {self.head}"
        where += f", row {self.row}" if self.row else ""
        return (
            f"what would be stored next is not right: the {self.part}{where} is off by "
            f"{self.off:.3g}, rounding explains {self.limit:.3g}"
        )

    def diagnosis(self) -> Diagnosis:
        """What the cache hands out, since nothing else can be wrong where the logits are right."""
        source = "new_kv" if self.token is not None else "recurrent"
        evidence = f"the logits are right, {self}: see `{source}` of the cache"
        return Diagnosis("cache", "kv_cache", evidence, self.layer, self.head, self.token)


def compare_tails(
    loaded: Loaded, state: State, fed: torch.Tensor, restored: Tail, reference: Tail, again: Tail
) -> Outlier | None:
    """Where `restored` is not the tail that `reference` is, both of a run fed `fed` `[rows, n]` after
    `state`; None where it is, or where one of them has none.

    again: of another plain path, whose distance from `reference` is the noise. What is beyond that is
    held against the noise of a whole prefill of its row, which takes longer to measure.
    """
    end = state.tokens + fed.shape[1]
    outlier = _outlier(restored, reference, _floors(reference, again, loaded.dtype), end)
    if outlier is None:
        return None
    past = state.token_ids[outlier.row, state.attention_mask[outlier.row] != 0]
    ids = torch.cat([past, fed[outlier.row].to(past)]).to(loaded.device)
    return _outlier(restored, reference, noise(loaded, ids[None]).tensors, end)


def _floors(tail: Tail, again: Tail, dtype: torch.dtype) -> list[dict[str, float]]:
    """Per layer and name how far two plain paths are apart, one rounding of the largest at least."""
    eps = torch.finfo(dtype).eps
    return [
        {
            name: max(largest(t.double() - other[name].double()), largest(t) * eps)
            for name, t in layer.items()
        }
        for layer, other in zip(tail, again, strict=False)
    ]


def _outlier(
    ours: Tail, theirs: Tail, floors: Sequence[dict[str, float]], end: int
) -> Outlier | None:
    """end: the number of tokens after the last one of both."""
    for index, (layer, other, floor) in enumerate(zip(ours, theirs, floors, strict=False)):
        for name, right in other.items():
            mine, limit = layer.get(name), MARGIN * floor[name]
            if mine is None or mine.shape != right.shape:
                return Outlier(index, name, float("nan"), limit)
            apart = (mine.to(right.device).double() - right.double()).abs()
            wrong = ~(apart <= limit)
            if not bool(wrong.any()):
                continue
            if name not in ("key", "value"):
                return Outlier(index, name, float(apart.max()), limit)
            row, token, head = wrong.any(-1).transpose(1, 2).nonzero()[0].tolist()
            off = float(apart[row, head, token].max())
            first = end - right.shape[2]
            return Outlier(index, name, off, limit, row, head, first + token)
    return None
