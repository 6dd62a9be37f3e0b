"""Build the decoder that a `cache` option names."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.cache import auto
from harness.cache.base import Decoder
from harness.errors import ConfigProblem, suggestion
from harness.snapshot.state import State

_INFRASTRUCTURE = {
    "__init__",
    "attention",
    "base",
    "kernels",
    "library",
    "memory",
    "parts",
    "projections",
    "reference",
    "registry",
    "tail",
}


@cache
def names() -> tuple[str, ...]:
    """Every cache implementation: one file or folder each, beside this one."""
    here = Path(__file__).parent
    found = {p.stem for p in here.glob("*.py")} | {
        p.parent.name for p in here.glob("*/__init__.py")
    }
    return tuple(sorted(found - _INFRASTRUCTURE))


def check(key: str, given: Sequence[str]) -> None:
    """Raise ConfigProblem when the list `key` names a cache that there is not."""
    for name in given:
        if name not in names():
            raise ConfigProblem(f"{key}: '{name}' is no cache.{suggestion(name, names())}")


def decoder(loaded: Any, state: State, settings: Any) -> Decoder:
    """A decoder continuing from `state`, which is only read. settings: a CacheConfig.

    Raises ConfigProblem for an unknown name, UnsupportedModel when model or state do not fit.
    """
    if settings.name not in names():
        near = suggestion(settings.name, names())
        raise ConfigProblem(f"cache={settings.name} is not a cache implementation.{near}")
    if settings.name == auto.NAME:
        return auto.Auto(decoder, loaded, state, settings)  # type: ignore[return-value]
    module = import_module(f"harness.cache.{settings.name}")
    return module.DECODER(loaded, state, settings)


def served(decoder: Any) -> dict[str, Any]:
    """Which implementation a decoder is, and why `auto` passed over faster ones."""
    name = getattr(decoder, "served", None) or type(decoder).__module__.rpartition(".")[2]
    return {"served": name, "passed_over": dict(getattr(decoder, "refused", {}))}
