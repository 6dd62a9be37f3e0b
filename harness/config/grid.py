"""What the overrides of a sweep give to vary: its keys, their values, how many points that is.

Of Hydra's own grammar; where a sweeper searches or has a grammar of its own, only it knows.
"""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from harness import variants
from harness.config.literal import typed
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


def once(overrides: Sequence[str]) -> None:
    """Raise ConfigProblem where a sweep gives a key twice, and several values: Hydra runs the points of the last of
    them alone, and would count those of all."""
    from hydra.errors import HydraException

    try:
        parsed = _parsed(overrides, single=True)
    except HydraException:  # where only a sweeper knows
        return
    given: dict[str, list[Any]] = {}
    for one in parsed:
        given.setdefault(one.get_key_element().lstrip("+"), []).append(one)
    for key, each in given.items():
        if each[1:] and any(one.is_sweep_override() for one in each):
            said = " and ".join(typed(str(one.input_line), many=True) for one in each)
            raise ConfigProblem(f"{key} is given more than once, {said}: leave out all but one.")


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


def _parsed(overrides: Sequence[str], single: bool = False) -> list[Any]:
    """Those of `overrides` that vary something. Raises HydraException where Hydra cannot read one. single: the others,
    too."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides([*overrides])
    return [o for o in parsed if single or o.is_sweep_override()]
