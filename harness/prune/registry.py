"""Build the policy that a `prune` option names."""

from harness import config, variants
from harness.config import PruneConfig
from harness.prune.base import Policy


def names() -> list[str]:
    """Every policy that can be chosen, from inside and outside."""
    return [name for name in variants.options("prune") if name != "none"]


def policy(settings: PruneConfig) -> Policy:
    """The policy that `settings` (an option of `prune`) declares. Raises ConfigProblem."""
    return variants.variant("prune", settings, Policy)(config.completed("prune", settings))
