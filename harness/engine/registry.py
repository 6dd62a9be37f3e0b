"""Build the engine that an `engine` option names."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.engine.base import Engine
from harness.errors import ConfigProblem, suggestion

_INFRASTRUCTURE = {"__init__", "base", "registry", "wire"}


@cache
def names() -> tuple[str, ...]:
    """Every engine: one file or folder each, beside this one."""
    here = Path(__file__).parent
    every = {p.stem for p in here.glob("*.py")} | {
        p.parent.name for p in here.glob("*/__init__.py")
    }
    return tuple(sorted(every - _INFRASTRUCTURE))


def engine(settings: Any) -> Engine:
    """The engine for an EngineConfig, not yet opened. Raises ConfigProblem for an unknown name."""
    if settings.name not in names():
        near = suggestion(settings.name, names())
        raise ConfigProblem(f"engine={settings.name} is not an engine.{near}")
    return import_module(f"harness.engine.{settings.name}").ENGINE(settings)
