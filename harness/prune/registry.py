"""Build the policy that a `prune` option names."""

from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import ConfigProblem, suggestion
from harness.prune.base import Policy

_INFRASTRUCTURE = {"__init__", "base", "budget", "choice", "registry", "positions"}


def names() -> list[str]:
    """Every policy: one file each, beside this one."""
    here = Path(__file__).parent
    return sorted(p.stem for p in here.glob("*.py") if p.stem not in _INFRASTRUCTURE)


def policy(settings: Any) -> Policy:
    """The policy that `settings` (a PruneConfig) declares. Raises ConfigProblem for an unknown name."""
    if settings.name not in names():
        near = suggestion(settings.name, names())
        raise ConfigProblem(f"prune={settings.name} is not a policy.{near}")
    return import_module(f"harness.prune.{settings.name}").POLICY(settings)
