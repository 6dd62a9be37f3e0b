"""The founding documents' claims, one small file each, settled by experiment in the run itself.

A file has `CLAIM` (the claim, in a sentence) and `settle(bench)`. SEEDS order is kept in `ORDER`.
"""

from importlib import import_module
from typing import Any

from harness.errors import ConfigProblem, suggestion

ORDER = (
    "isolation", "clone_cost", "manual_forward", "special_tokens", "position_fault",
    "position_reset", "priming", "template_drift", "aliasing", "rebind", "precision",
    "batch_masking", "sliding_window", "cursor", "save_formats", "prune_quality", "turn_latency",
    "prefix_fault", "recurrent_chunk",
)  # fmt: skip


def claim_named(name: str) -> Any:
    """The module of a claim. Raises ConfigProblem for an unknown name."""
    if name not in ORDER:
        raise ConfigProblem(f"task.only: '{name}' is not a claim.{suggestion(name, list(ORDER))}")
    return import_module(f"harness.task.claims.{name}")
