"""Find the fault that a `fault` option names. One file beside this one holds one kind of damage."""

from functools import cache

from harness import config, variants
from harness.config import FaultConfig
from harness.errors import ConfigProblem
from harness.fault.base import Fault


def every() -> dict[str, Fault]:
    """Every fault by name, `none` (the control) first, then by element. Imports all of them."""
    return _every(tuple(variants.options("fault")))


@cache
def _every(names: tuple[str, ...]) -> dict[str, Fault]:
    faults = [_built(config.option("fault", name), name) for name in names]
    return {fault.name: fault for fault in sorted(faults, key=lambda f: (f.element, f.name))}


def fault_named(settings: FaultConfig, called: str | None = None) -> Fault:
    """The fault of an option of `fault`, with its keys. called: as of `_built`. Raises ConfigProblem for an unknown
    name."""
    return _built(settings, called).configured(config.completed("fault", settings))


def _built(settings: FaultConfig, called: str | None = None) -> Fault:
    """called: its option, where that is another than the one whose class it has."""
    fault = variants.variant("fault", settings, Fault)()
    fault.name = fault.name or settings.name
    if called and called != settings.name:
        fault.name = called
    if not fault.element and fault.name != "none":
        raise ConfigProblem(
            f"fault={fault.name}: {type(fault).__name__} does not say what it damages. Write the number of "
            f"the element in its head: `class {type(fault).__name__}(Fault, element=8)`, 1 to 13."
        )
    return fault
