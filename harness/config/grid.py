"""What the overrides of a sweep vary: its keys, their values, and how many points that is.

By Hydra's own grammar; where a sweeper searches or has a grammar of its own, only it knows.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from harness import variants
from harness.errors import ConfigProblem


def jobs(overrides: Sequence[str]) -> int | None:
    """How many jobs these sweep overrides give; None where only a sweeper knows."""
    from hydra.errors import HydraException

    try:
        swept = {o.get_key_element(): o for o in swept_overrides(overrides)}
        return prod(len(values(o)) for o in swept.values())
    except HydraException:
        return None


def varied(overrides: Sequence[str]) -> list[str]:
    """The keys to which these overrides give several values; none where only a sweeper knows."""
    from hydra.errors import HydraException

    try:
        return [o.get_key_element() for o in swept_overrides(overrides)]
    except HydraException:
        return []


def several(key: str, overrides: Sequence[str]) -> list[str]:
    """The values that these overrides of a sweep give `key`; none where it is not varied."""
    from hydra.errors import HydraException

    try:
        swept = swept_overrides([o for o in overrides if o.lstrip("+").startswith(f"{key}=")])
        return [one for override in swept for one in values(override)]
    except HydraException:
        return []


def values(override: Any) -> list[str]:
    """The values of a sweep override of Hydra's, those that a `glob(...)` matches among the options of its
    group. Raises HydraException where only its sweeper knows, ConfigProblem for a range that has no end."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    if isinstance(override.value(), Glob):
        return list(override.value().filter(variants.options(override.key_or_group)))
    if isinstance(override.value(), RangeSweep) and override.value().step == 0:
        raise ConfigProblem(f"{override.input_line}: its step is 0.")
    return list(map(str, override.sweep_string_iterator()))


def swept_overrides(overrides: Sequence[str]) -> list[Any]:
    """Those that vary something, parsed. Raises HydraException where Hydra cannot read one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides([*overrides])
    return [o for o in parsed if o.is_sweep_override()]
