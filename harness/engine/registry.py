"""Build the engine that an `engine` option names."""

from typing import Any

from harness import config, variants
from harness.engine.base import Engine


def names() -> tuple[str, ...]:
    """Every engine that can be chosen, from inside and outside, but our own."""
    return tuple(name for name in variants.options("engine") if name != "transformers")


def engine(settings: Any) -> Engine:
    """The engine for an option of `engine`, not yet opened. Raises ConfigProblem."""
    return variants.variant("engine", settings, Engine)(config.completed("engine", settings))
