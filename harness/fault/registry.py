"""Find the fault that a `fault` option names. One file beside this one holds one kind of damage."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import ConfigProblem, suggestion
from harness.fault.base import Fault

_INFRASTRUCTURE = {"__init__", "base", "registry", "edit", "field"}


@cache
def every() -> dict[str, Fault]:
    """Every fault by name, `none` (the control) first, then by element. Imports all of them."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in _INFRASTRUCTURE:
            for fault in import_module(f"harness.fault.{path.stem}").FAULTS:
                fault.name = fault.name or path.stem
                found[fault.name] = fault
    return dict(sorted(found.items(), key=lambda pair: (pair[1].element, pair[0])))


def fault_named(settings: Any) -> Fault:
    """The fault of a FaultConfig, with its keys. Raises ConfigProblem for an unknown name."""
    if settings.name not in every():
        near = suggestion(settings.name, list(every()))
        raise ConfigProblem(f"fault={settings.name} is not a fault.{near}")
    return every()[settings.name].configured(settings)
