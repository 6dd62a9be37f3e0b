"""Files of one's own that give a plain value to what is a group or a section, or an option its name, or that vary what
there is not: Hydra composes such without a word, or with one that names no file."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import keys, variants
from harness.config import chain, culprit
from harness.config.choice import check_option, chosen
from harness.config.grid import values
from harness.config.option import NAMES, readable, schemas
from harness.config.unknown import block, unknown_key
from harness.errors import ConfigProblem, suggestion


def check_files(overrides: Sequence[str]) -> None:
    """Raise ConfigProblem for a primary configuration or an experiment of one's own that chooses an option otherwise
    than among its defaults, for one that gives a section of the configuration a plain value, and for one whose
    `hydra.sweeper.params` name a key or an option that there is not."""
    for path, key, value in _given():
        if key == "hydra":
            _check_varied(path, value)
        if isinstance(value, str) and value.startswith("${"):
            continue
        if key in schemas():
            _check_group(path, key, value, overrides)
        elif (inner := block(key)) and not isinstance(value, dict):
            raise ConfigProblem(
                f"{path} sets {key} to {_shown(value)}, and {key} has keys of its own: {', '.join(sorted(inner))}. Write "
                f"`{key}:` and below it `KEY: VALUE`."
            )


def _given() -> Iterator[tuple[Path, str, Any]]:
    """What the user's own files of this job give the keys of the whole configuration: file, key and value."""
    pairs = ((a, a.lstrip("+").partition("=")) for a in sys.argv[1:])
    typed = [a for a, (key, equals, _) in pairs if not equals or key not in schemas()]
    places = [*variants.folders(), chain.home(typed)]
    if all(place == variants.conf_dir() for place in places):
        return
    for where, package in chain.files(typed):
        path = culprit.file(where)
        if path and not package and variants.conf_dir() not in path.parents:
            yield from ((path, key, value) for key, value in keys.tree(path).items())


def _check_varied(path: Path, hydra: Any) -> None:
    sweeper = hydra.get("sweeper") if isinstance(hydra, dict) else None
    params = sweeper.get("params") if isinstance(sweeper, dict) else None
    for key, value in params.items() if isinstance(params, dict) else ():
        if key in (*schemas(), "experiment"):
            _check_options(path, f"{key}={value}")
        elif near := "" if str(key).startswith("hydra") else unknown_key(str(key).lstrip("+"), ""):
            raise ConfigProblem(
                f"{path} varies {key}={value}: '{key}' is not a key of the configuration.{near}"
            )


def _check_options(path: Path, setting: str) -> None:
    """Each option of the `group=a,b` that a file varies; what only a sweeper can read it says itself."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    with suppress(HydraException):
        override = OverridesParser.create().parse_override(setting)
        several = values(override) if override.is_sweep_override() else [override.value()]
        group = override.key_or_group
        try:
            for option in several:
                check_option(f"{group}={option}")
        except ConfigProblem as problem:
            raise ConfigProblem(f"{path} varies {problem}") from None


def _check_group(path: Path, group: str, value: Any, overrides: Sequence[str]) -> None:
    known = variants.options(group)
    if not isinstance(value, dict):
        meant = f"write `override /{group}: {value}` among its defaults."
        if value not in known:
            meant = f"an option is chosen among its defaults, `override /{group}: OPTION`.{suggestion(str(value), known)}"
        raise ConfigProblem(f"{path} sets {group} to {_shown(value)}: {meant}")
    name = value.get("name")
    whole = name in known and {*value} >= readable(group, name) - {*NAMES}
    if name in known and not whole and chosen(group, overrides) != [name]:
        raise ConfigProblem(
            f"{path} sets {group}.name to {_shown(name)}, and an option brings all of its keys: write "
            f"`override /{group}: {name}` among its defaults, and leave `name` out."
        )


def _shown(value: Any) -> str:
    """A value as YAML has it, a text in quotes."""
    known = {True: "true", False: "false", None: "null"}
    return known[value] if value is None or isinstance(value, bool) else repr(value)
