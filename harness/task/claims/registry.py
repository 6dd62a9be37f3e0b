"""The founding documents' claims: rows of `CLAIMS`, each settled by its experiment in the run itself."""

from harness.errors import ConfigProblem, suggestion
from harness.task.claims import (
    caches,
    positions,
    precision,
    recurrent_chunk,
    save_formats,
    template_drift,
    turn_latency,
)
from harness.task.claims.bench import CLAIMS, Claim

# importing them fills CLAIMS
MODULES = (
    caches,
    positions,
    precision,
    recurrent_chunk,
    save_formats,
    template_drift,
    turn_latency,
)
ORDER = (
    "isolation", "clone_cost", "manual_forward", "special_tokens", "position_fault",
    "position_reset", "priming", "template_drift", "aliasing", "rebind", "precision",
    "batch_masking", "sliding_window", "cursor", "save_formats", "prune_quality", "turn_latency",
    "prefix_fault", "recurrent_chunk",
)  # fmt: skip


def claim_named(name: str) -> Claim:
    """The claim. Raises ConfigProblem for an unknown name."""
    if name not in ORDER:
        raise ConfigProblem(f"task.only: '{name}' is not a claim.{suggestion(name, list(ORDER))}")
    return CLAIMS[name]
