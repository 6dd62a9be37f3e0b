"""Which options Hydra itself comes to, where that takes more than a look at one defaults list: a primary config of the
user's own, or an experiment that is built on another."""

import sys
from collections.abc import Sequence
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

from harness import keys, variants
from harness.config.literal import MULTIRUN
from harness.config.option import schemas

MANY = 64  # choices of a sweep that are composed to see which files they lead to

# the flags that choose a primary config -> what of it they choose
PRIMARY = {"--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path"}


def loader(flags: Sequence[str]) -> tuple[Any, str]:
    """Hydra's own loader of what these arguments choose, and the name of the primary configuration."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_automatic_config_search_path, get_args_parser
    from hydra.core.config_search_path import SearchPathQuery

    said, _ = get_args_parser().parse_known_args(flags)
    place = create_automatic_config_search_path(None, "harness", str(home(flags)))
    if said.config_dir:
        path = f"file://{Path(said.config_dir).absolute()}"
        place.prepend("command-line", path, SearchPathQuery(provider="schema"))
    return ConfigLoaderImpl(place), said.config_name or "config"


def home(flags: Sequence[str]) -> Path:
    """The folder of the primary configuration that these arguments choose."""
    from hydra._internal.utils import get_args_parser

    said, _ = get_args_parser().parse_known_args(flags)
    return Path(said.config_path).absolute() if said.config_path else variants.conf_dir()


def needed(named: Sequence[tuple[str, str]]) -> bool:
    """Whether the options that a job leads to hang on more than its own file's `override`s. named: group and option
    that it chooses."""
    if any(argument.partition("=")[0] in PRIMARY for argument in sys.argv[1:]):
        return True
    for group, option in named:
        for entry in variants.defaults(group, option):
            says = list(entry) if isinstance(entry, dict) else [entry]
            override = any(str(key).startswith("override ") for key in says)
            if group in ("experiment", "task"):
                if entry != "_self_" and not override:
                    return True
            elif override:
                return True
    return False


@cache
def choices(flags: tuple[str, ...], overrides: tuple[str, ...]) -> dict[str, str]:
    """Group -> option as Hydra composes it; empty where it cannot, which it says itself."""
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    try:
        hydras, name = loader(flags)
        found = hydras.compute_defaults_list(name, list(overrides), RunMode.RUN)
    except (HydraException, OmegaConfBaseException, OSError, ValueError, RecursionError):
        return {}
    return {k: str(v) for k, v in found.overrides.known_choices.items() if v is not None}


def varied(group: str, experiments: Sequence[str]) -> list[str]:
    """What the `hydra.sweeper.params` of these experiments give `group`, in a sweep; nothing in one run."""
    if not {*MULTIRUN} & {*sys.argv[1:]}:
        return []
    written = (variants.written("experiment", experiment) for experiment in experiments)
    hydras = [keys.tree(path).get("hydra") or {} for path in filter(None, written)]
    params = [(hydra.get("sweeper") or {}).get("params") or {} for hydra in hydras]
    return [str(given[group]) for given in params if group in given]


def files(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The name of each YAML that these arguments compose, and the package that its keys lie in, the last one first;
    none where Hydra cannot tell. Of several options of a sweep those of each."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    typed = [a.lstrip("+").partition("=") for a in arguments]
    each = [
        [f"{key}={one}" for one in ([value] if value.startswith("[") else value.split(","))]
        for key, equals, value in typed
        if equals and key in (*schemas(), "experiment", "hydra.searchpath")
    ]
    try:
        hydras, name = loader(arguments)
    except (HydraException, OmegaConfBaseException, OSError, ValueError):
        return []
    lists = [_listed(hydras, name, way) for way in islice(product(*each), MANY)]
    return [(str(f.config_path), f.package or "") for list_ in lists for f in reversed(list_)]


def _listed(hydras: Any, name: str, way: Sequence[str]) -> list[Any]:
    """The files that Hydra comes to with these choices; none where it cannot tell."""
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    try:
        return list(hydras.compute_defaults_list(name, [*way], RunMode.RUN).defaults)
    except (HydraException, OmegaConfBaseException, OSError, ValueError, RecursionError):
        return []
