"""Build the engine that an `engine` option names."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.engine.base import Engine
from harness.errors import ConfigProblem, suggestion

_INFRASTRUCTURE = {"__init__", "base", "local", "registry", "wire"}
OURS = "transformers"  # runs the model that the job declares


@cache
def names() -> tuple[str, ...]:
    """Every engine: one file or folder each, beside this one."""
    here = Path(__file__).parent
    every = {p.stem for p in here.glob("*.py")} | {
        p.parent.name for p in here.glob("*/__init__.py")
    }
    return tuple(sorted(every - _INFRASTRUCTURE))


def engine(settings: Any, ours: Callable[[], Any]) -> Engine:
    """The engine for an EngineConfig, not yet opened. ours: loads our own model, for the engine that
    runs it. Raises ConfigProblem for an unknown name."""
    if settings.name not in names():
        near = suggestion(settings.name, names())
        raise ConfigProblem(f"engine={settings.name} is not an engine.{near}")
    made = import_module(f"harness.engine.{settings.name}").ENGINE
    return made(settings, ours()) if settings.name == OURS else made(settings)
