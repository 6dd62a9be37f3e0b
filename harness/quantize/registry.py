"""Build the quantizer that a `quantize` option names."""

from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import ConfigProblem, suggestion
from harness.quantize.base import Quantizer

_INFRASTRUCTURE = {"__init__", "base", "registry"}


def names() -> list[str]:
    """Every quantizer: one file each, beside this one."""
    here = Path(__file__).parent
    return sorted(p.stem for p in here.glob("*.py") if p.stem not in _INFRASTRUCTURE)


def quantizer(settings: Any) -> Quantizer:
    """The quantizer that `settings` (a QuantizeConfig) declares. Raises ConfigProblem for an unknown
    name."""
    if settings.name not in names():
        near = suggestion(settings.name, names())
        raise ConfigProblem(f"quantize={settings.name} is not a quantizer.{near}")
    return import_module(f"harness.quantize.{settings.name}").QUANTIZER(settings)
