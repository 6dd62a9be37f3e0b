"""Build the engine that an `engine` option names."""

from collections.abc import Callable
from typing import Any

from harness import config, variants
from harness.config import EngineConfig
from harness.engine.base import Engine

OURS = "transformers"  # runs the model that the job declares


def names() -> tuple[str, ...]:
    """Every engine that can be chosen, from inside and outside."""
    return tuple(variants.options("engine"))


def engine(settings: EngineConfig, ours: Callable[[], Any]) -> Engine:
    """The engine for an option of `engine`, not yet opened. ours: loads our own model, for the engine
    that runs it. Raises ConfigProblem."""
    kind = variants.variant("engine", settings, Engine)
    complete = config.completed("engine", settings)
    if settings.name == OURS:
        return kind(complete, ours())
    return kind(complete, ours) if kind.exports and not complete.model else kind(complete)
