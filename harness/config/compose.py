"""From YAML and overrides to a checked `Config`; composition errors as one plain message.

Only here and in `__main__` are hydra and omegaconf known, and only inside functions.
"""

import os
import re
from dataclasses import fields, is_dataclass
from math import prod
from pathlib import Path
from typing import Any

from harness.config.literal import decode_literal, plain
from harness.config.schema import Config
from harness.errors import ConfigProblem, suggestion


def conf_dir() -> Path:
    """Where the YAML lives: inside the package in a wheel, beside it in a checkout."""
    here = Path(__file__).resolve().parent.parent
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


def options(group: str, conf: Path | None = None) -> list[str]:
    """Names of a group's options, from its folder."""
    return sorted(p.stem for p in ((conf or conf_dir()) / group).glob("*.yaml"))


def register(token: str | None = None) -> str:
    """Put the schema into Hydra's config store and declare the resolvers the YAML uses.

    Returns the token that makes a run directory's name unique; a sweep's workers are given it.
    """
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    token = token or f"{os.getpid():x}{os.urandom(3).hex()}"
    OmegaConf.register_new_resolver("unique", lambda: token, replace=True)
    OmegaConf.register_new_resolver("literal", decode_literal, replace=True)
    ConfigStore.instance().store(name="schema", node=Config)
    return token


def points(overrides: list[str]) -> int:
    """How many jobs these sweep overrides give."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = {o.get_key_element(): o for o in OverridesParser.create().parse_overrides(overrides)}
    swept = [o for o in parsed.values() if o.is_sweep_override()]
    return prod(len(list(o.sweep_string_iterator())) for o in swept)


def recorded(path: Path) -> Config:
    """The checked `Config` of a run's `.hydra/config.yaml`. A record is data: references inside it
    and our own `literal` are resolved, nothing else (no environment, no file, no class)."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    text = path.read_text("utf-8")
    if foreign := set(re.findall(r"\$\{\s*([\w.]+)\s*:", text)) - {"literal"}:
        raise ConfigProblem(f"{path} uses {', '.join(sorted(foreign))}, which no record needs.")
    try:
        tree = OmegaConf.create(text)
        return typed(OmegaConf.merge(OmegaConf.structured(Config), tree))
    except (OmegaConfBaseException, ValueError, TypeError, yaml.YAMLError) as problem:
        raise ConfigProblem(f"{path} is no configuration: {str(problem).splitlines()[0]}") from None


def typed(cfg: Any) -> Config:
    """Turn a composed DictConfig into a checked `Config`; unknown keys are errors with a suggestion."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _reject_unknown(OmegaConf.to_container(cfg, resolve=False), Config, "")
    try:
        checked: Any = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as problem:
        key = getattr(problem, "full_key", None) or "a key"
        raise ConfigProblem(f"{key}: {str(problem).splitlines()[0]}") from problem
    checked.text, checked.prompt.text = plain(checked.text), plain(checked.prompt.text)
    return checked


def _reject_unknown(node: dict[str, Any], schema: type, prefix: str) -> None:
    known = {f.name: f.type for f in fields(schema)}
    for key, value in node.items():
        if key not in known:
            near = suggestion(key, list(known))
            raise ConfigProblem(f"'{prefix}{key}' is not a key of the configuration.{near}")
        inner = known[key]
        if isinstance(inner, type) and is_dataclass(inner) and isinstance(value, dict):
            _reject_unknown(value, inner, f"{prefix}{key}.")
