"""Where tokens are drawn, which of them the restored run draws otherwise: there that, not the most likely token,
is what a reader sees and what the verdict is on."""

from collections.abc import Mapping
from typing import Any

from harness.config.sampling import most_likely

SHARE, FIRST = "same_draws", "first_other_draw"  # columns of a sweep's table


def others(result: Mapping[str, Any]) -> list[int]:
    """The steps, counted from 1, after which a run that need not choose the most likely token drew another one; 0 is
    that of the stored logits, before any step. Empty of a greedy run, and where the record has no ids of both."""
    return [step for step, (one, two) in enumerate(_drawn(result)) if one != two]


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """The share of the draws that are the same, and the first step (from 1) that draws another token, None where none
    does. Nothing where no token is drawn."""
    many, other = len(_drawn(result)), others(result)
    if not many:
        return {}
    return {SHARE: 1 - len(other) / many, FIRST: other[0] if other else None}


def _drawn(result: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The ids that both runs drew; none of a chat, whose ids are those of its last turn."""
    sampler, text = result.get("sampler") or {}, result.get("text") or {}
    if most_likely(sampler) or result.get("task") == "chat":
        return []
    return list(zip(text.get("token_ids") or [], text.get("restored_ids") or []))
