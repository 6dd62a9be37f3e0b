"""How many routed experts a layer has, and how many of them a token is sent to."""

from typing import Any

ROUTED = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
SENT = ("num_experts_per_tok", "moe_topk", "moe_k")


def experts(config: Any) -> tuple[int, int]:
    """`(routed experts of a layer, experts that a token is sent to)` of a text config, by whichever of the
    library's names it has; 0 for what it does not say."""
    routed, sent = (
        next((int(count) for name in names if (count := getattr(config, name, None))), 0)
        for names in (ROUTED, SENT)
    )
    return routed, sent
