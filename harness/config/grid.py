"""What the overrides of a sweep give to vary: its keys, their values, how many points that is.

Of Hydra's own grammar; where a sweeper searches or has a grammar of its own, only it knows.
"""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from harness import variants
from harness.errors import ConfigProblem


def jobs(overrides: list[str]) -> int | None:
    """How many jobs these sweep overrides give; None where only a sweeper knows."""
    from hydra.errors import HydraException

    try:
        swept = {o.get_key_element(): o for o in _parsed(overrides)}
        return prod(len(values(o)) for o in swept.values())
    except HydraException:
        return None


def varied(overrides: list[str]) -> list[str]:
    """The keys to which these overrides of a sweep give several values; none where only a sweeper knows."""
    from hydra.errors import HydraException

    try:
        return [o.get_key_element() for o in _parsed(overrides)]
    except HydraException:
        return []


def repeated(overrides: Sequence[str]) -> dict[str, list[str]]:
    """By the key of a sweep override, the values that it gives more than once, so that a grid runs them as
    often; none where only a sweeper knows."""
    from hydra.errors import HydraException

    try:
        given = {o.get_key_element(): Counter(values(o)) for o in _parsed(overrides)}
    except HydraException:
        return {}
    several = {key: [one for one, n in many.items() if n > 1] for key, many in given.items()}
    return {key: twice for key, twice in several.items() if twice}


def values(override: Any) -> list[str]:
    """The values of a sweep override of Hydra's, those that a `glob(...)` matches among the options of its
    group. Raises HydraException where only its sweeper knows, ConfigProblem for a range that leads nowhere."""
    from hydra.core.override_parser.types import Glob, RangeSweep

    if isinstance(override.value(), Glob):
        return list(override.value().filter(variants.options(override.key_or_group)))
    if isinstance(override.value(), RangeSweep) and override.value().step == 0:
        raise ConfigProblem(
            f"{override.input_line}: its step is 0, so it never comes to its end. Give another, or leave it out: it "
            "is 1 then."
        )
    return list(map(str, override.sweep_string_iterator()))


def _parsed(overrides: Sequence[str]) -> list[Any]:
    """Those of `overrides` that vary something. Raises HydraException where Hydra cannot read one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return [
        o for o in OverridesParser.create().parse_overrides([*overrides]) if o.is_sweep_override()
    ]
