"""How a state was continued, so that the same way can be gone again: in float64, or by another cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.cache.registry import others
from harness.config import CacheConfig, PruneConfig
from harness.pipeline.budget import Bounded, Kept
from harness.snapshot.state import State

WHOLE = PruneConfig(name="none")


@dataclass(frozen=True)
class Way:
    """How a state was continued, and what is needed to go another way from the same place.

    cache: what was asked for. prune: with `at=N` it prunes on the way. others: caches that share no forward
    with this one, the best first. kept: what each pruning on the way kept. compiled: its steps ran code of the
    working dtype alone, which no float64 run reaches.
    """

    cache: CacheConfig
    prune: PruneConfig
    others: tuple[str, ...]
    kept: Sequence[Kept]
    compiled: bool = False

    @classmethod
    def of(cls, decoder: Any, cache: CacheConfig, prune: PruneConfig = WHOLE) -> "Way":
        """Of what `continuation` gave, after it went its way."""
        kept = decoder.kept if isinstance(decoder, Bounded) else []
        first = getattr(decoder, "first", decoder)
        return cls(cache, prune, others(first), kept, bool(getattr(first, "compiled", False)))


def meant(state: State) -> bool:
    """Whether `state` was pruned or quantized once, and so holds another past than its ids give."""
    form = state.documents["kv_format"]
    return bool(state.pruned or state.quantized or form.get("pruned") or form.get("quantized"))
