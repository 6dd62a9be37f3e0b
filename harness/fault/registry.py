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
    faults = [_built(config.option("fault", name)) for name in names]
    return {fault.name: fault for fault in sorted(faults, key=lambda f: (f.element, f.name))}


def fault_named(settings: FaultConfig) -> Fault:
    """The fault of an option of `fault`, with its keys. Raises ConfigProblem for an unknown name."""
    return _built(settings).configured(config.completed("fault", settings))


def _built(settings: FaultConfig) -> Fault:
    fault = variants.variant("fault", settings, Fault)()
    fault.name = fault.name or settings.name
    if not fault.element and fault.name != "none":
        raise ConfigProblem(
            f"fault={fault.name}: {type(fault).__name__} does not say what it damages. Write the number of "
            f"the element in its head: `class {type(fault).__name__}(Fault, element=8)`, 1 to 13."
        )
    return fault
