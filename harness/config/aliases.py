"""Options of one's own that inherit one of ours (`defaults: [snapkv, _self_]`): they are read as that one, and
recorded by the name that they were chosen by."""

import re
from collections.abc import Mapping
from typing import Any

from harness import variants
from harness.errors import ConfigProblem

KEY = "called"  # of the configuration
GROUPS = ("prune", "quantize", "cache", "save", "prompt", "sampling", "tokenizer", "compare", "fault")  # fmt: skip


def applied(cfg: Any, choices: Mapping[str, Any]) -> Any:
    """`cfg`, composed, with the names of such options; the object itself where there are none. choices: Hydra's, by
    group. What such a file inherits has its own `name`, by which its class is found; where the task's keys refer to it
    (`prunes: ["${prune.name}"]`), the option itself is meant."""
    from omegaconf import OmegaConf

    named = {
        group: str(choices[group])
        for group in GROUPS
        if choices.get(group)
        and OmegaConf.select(cfg, f"{group}.name") not in (None, choices[group])
        and choices[group] not in variants.options(group, variants.conf_dir())
    }
    if not named:
        return cfg
    whole: Any = OmegaConf.merge(OmegaConf.create({KEY: named}), _open(cfg))
    whole.task = _meant(OmegaConf.to_container(whole.task, resolve=False), named)
    return whole


def check(names: Mapping[str, str]) -> None:
    """Raise ConfigProblem where a configuration calls an option by the name of one of ours, which it is not."""
    for group, name in names.items():
        if group not in GROUPS or name in variants.options(group, variants.conf_dir()):
            raise ConfigProblem(f"{KEY}.{group}={name} is no name of an option of your own.")


def _meant(value: Any, named: Mapping[str, str]) -> Any:
    """`value`, a task's keys, with the option's own name for each `${GROUP.name}` of one that is `named`."""
    if isinstance(value, dict):
        return {key: _meant(inner, named) for key, inner in value.items()}
    if isinstance(value, list):
        return [_meant(inner, named) for inner in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\$\{(\w+)\.name\}", lambda m: named.get(m[1], m[0]), value)


def _open(cfg: Any) -> Any:
    from omegaconf import OmegaConf

    free = cfg.copy()
    OmegaConf.set_struct(free, False)
    return free
