"""Where a model's RoPE factors switch, so that a cache from before cannot serve after.

Longrope (Phi-3) rotates with short factors up to `original_max_position_embeddings` tokens and with
long ones beyond. Keys that were cached before the switch are rotated otherwise than a run without a
cache would rotate them. The library's `generate` lets go of its cache there and processes everything
again; a raw forward goes on with the old keys. Source: LongRoPE (2402.13753), `modeling_phi3`.
"""

from typing import Any


def switch_of(config: Any) -> int | None:
    """The last length that the short factors serve; None for a model that never switches."""
    rope = getattr(config, "rope_parameters", None) or {}
    if not isinstance(rope, dict) or rope.get("rope_type") != "longrope":
        return None
    length = rope.get("original_max_position_embeddings") or getattr(
        config, "original_max_position_embeddings", None
    )
    return int(length) if length else None


def crosses(switch: int | None, first: int, last: int) -> bool:
    """Whether feeding tokens `first` to `last` (exclusive) onto `first` cached ones passes `switch`."""
    return switch is not None and 0 < first <= switch < last
