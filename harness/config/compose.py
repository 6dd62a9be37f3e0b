"""From YAML and overrides to a checked `Config`.

Only in this room, in `cli` and in `__main__` are hydra and omegaconf known, and only inside functions.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from harness import keys, variants
from harness.config import aliases, tracking
from harness.config.explain import holder, one_line
from harness.config.literal import decode_literal, plain
from harness.config.option import (
    UNREAD,
    common,
    misread,
    readable,
    schema_of,
    schemas,
    shared,
    unasked,
)
from harness.config.schema import Config
from harness.config.unknown import unknown_key
from harness.errors import ConfigProblem, suggestion


def register(token: str | None = None) -> str:
    """Put the schema into Hydra's config store and declare the resolvers the YAML uses.

    Returns the token that makes a run directory's name unique; a sweep's workers are given it.
    """
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    token = token or f"{os.getpid():x}{os.urandom(3).hex()}"
    OmegaConf.register_new_resolver("unique", lambda: token, replace=True)
    OmegaConf.register_new_resolver("literal", decode_literal, replace=True)
    store: Any = ConfigStore.instance()
    store.store(name="schema", node=_open_schema())
    store.store(group="hydra", name="config", node=_own_hydra(), provider="hydra")
    _register_plugins()
    return token


def registered() -> None:
    """`register`, unless it was done: another token would send the next points of a sweep elsewhere."""
    from omegaconf import OmegaConf

    if not OmegaConf.has_resolver("unique"):
        register()


def _own_hydra() -> Any:
    """Hydra's own settings as `config.yaml` has them, so that a primary config of the user's own begins with
    them too: where records go, and who watches that none is written over."""
    from hydra.conf import HydraConf
    from omegaconf import OmegaConf

    base = HydraConf()
    quiet = ("hydra_logging", "job_logging")
    base.defaults = [{k: "none" if k in quiet else v for k, v in e.items()} for e in base.defaults]
    return OmegaConf.merge(base, keys.tree(variants.conf_dir() / "config.yaml")["hydra"])


def _open_schema() -> Any:
    """The common keys typed; every group an open mapping of its shared keys, since what else an
    option reads only its YAML says. `typed` checks all of it once it is composed."""
    from omegaconf import OmegaConf

    node = OmegaConf.structured(common())
    for group in schemas():
        OmegaConf.set_struct(node[group], False)
    return node


def _register_plugins() -> None:
    """Hydra finds the YAML of installed packages, and options of theirs that have none."""
    if not variants.entry_points():
        return
    from hydra.core.config_store import ConfigStore
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class Installed(SearchPathPlugin):
        def manipulate_search_path(self, search_path: Any) -> None:
            for folder in variants.installed_folders():
                search_path.append("harness", f"file://{folder}")

    Plugins.instance().register(Installed)
    for group, name in variants.entry_points():
        written = any((f / group / f"{name}.yaml").is_file() for f in variants.folders())
        if not written:
            node = variants.signature(group, name)
            ConfigStore.instance().store(group=group, name=name, node=node)


def typed(cfg: Any, swept: bool = False, record: bool = False) -> Config:
    """Turn a composed DictConfig into a checked `Config`; a key that nothing reads is an error.

    swept: it is a point of a sweep, whose other points may read what this one does not. record: the same of a
    record, of which nothing is looked up outside.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    written: Any = OmegaConf.to_container(cfg, resolve=False)
    kinds = check_keys(written, lenient=swept or record)
    try:
        for key in () if record else sorted(OmegaConf.missing_keys(cfg)):
            raise ConfigProblem(f"{key}=???: a value must be given.")
        checked: Any = OmegaConf.to_object(OmegaConf.merge(_schema(**kinds), written))
    except OmegaConfBaseException as problem:
        raise ConfigProblem(
            ("" if record else _where(problem)) + _valued(cfg, problem)
        ) from problem
    for block in (checked, checked.prompt, checked.model):
        for key in (f.name for f in fields(block) if isinstance(getattr(block, f.name), str)):
            setattr(block, key, plain(getattr(block, key)))
    aliases.check(checked.called)
    if not record:
        tracking.check(checked.track)
    if not (record or swept) and (text := unasked(checked)):
        raise ConfigProblem(text)
    return checked


def _where(problem: Any) -> str:
    return holder(str(getattr(problem, "full_key", "") or ""))


def _valued(cfg: Any, problem: Any) -> str:
    """What OmegaConf says of a value, after `KEY=VALUE`."""
    key = str(getattr(problem, "full_key", "") or "")
    node: Any = cfg
    for part in key.split(".") if key else ():
        node = node._get_node(part) if hasattr(node, "_get_node") else None
    value = getattr(node, "_value", lambda: None)()
    text = one_line(problem).removeprefix(f"{key}: ")
    if isinstance(value, str | int | float) and key:
        return f"{key}={value}: {text}"
    return f"{key}: {text}" if key else text


def check_keys(written: dict[str, Any], lenient: bool = False) -> dict[str, type]:
    """The dataclass of each group's chosen option. Raises ConfigProblem for a key that nothing reads, unless it is
    `lenient`, of a group. written: a composed configuration as plain values; its groups are left with what their
    options read."""
    for problem in () if lenient else unread_keys(written).values():
        raise ConfigProblem(problem)
    _reject_unknown(written, Config, "")
    kinds = {}
    for group in schemas():
        node = written.get(group)
        if not isinstance(node, dict):
            continue
        name = str(node.get("name"))
        if name in variants.options(group):  # or, as in a sweep's workers, the node is all there is
            node = {k: v for k, v in node.items() if k in readable(group, name)}
        node = written[group] = {k: v for k, v in node.items() if k != UNREAD}
        kinds[group] = schema_of(group, name, node)
    return kinds


def unread_keys(written: Mapping[str, Any]) -> dict[str, str]:
    """By its key, why no option reads what a group of `written`, a composed configuration, holds. Defaults of the
    group do not count."""
    found = {}
    for group in schemas():
        node = written.get(group)
        if isinstance(node, str):
            found[group] = (
                f"{holder(group)}{group} is '{node}': an option is chosen among the defaults, "
                f"`override /{group}: {node}`."
            )
        if not isinstance(node, dict):
            continue
        name = str(node.get("name"))
        if name not in variants.options(group):
            if problem := _misnamed(group, node):
                found[f"{group}.name"] = problem
            continue
        reads, usual = {*readable(group, name), UNREAD}, shared(group)
        for key, value in node.items():
            if key not in reads and not (key in usual and value == usual[key]):
                found[f"{group}.{key}"] = (
                    f"{holder(f'{group}.{key}')}{misread(group, [name], [key])}"
                )
    return found


@cache
def _schema(**kinds: type) -> Any:
    """`Config` with each group as its chosen option has it. Not to be changed."""
    from omegaconf import OmegaConf

    schema = OmegaConf.structured(Config)
    for group, kind in kinds.items():
        schema[group] = OmegaConf.structured(kind)
    return schema


def _misnamed(group: str, node: Mapping[str, Any]) -> str | None:
    """What is wrong where the `name` of a chosen option is none of the group's; None where it may be one."""
    name = node.get("name")
    if not name:
        return f"no option of {group} is chosen: {group}=OPTION. Its YAML needs a `name`, that of its file."
    files = [o for o in variants.sound(group) if variants.signature(group, o).get("name") == name]
    if files:
        option = min(files, key=lambda option: f"{group}={option}" not in sys.argv)
        path = variants.written(group, option)
        return f"{group}={option}: {path} says name: {name}. Write name: {option}, as the file is called."
    if variants.TARGET in node:
        return None
    return f"{group}.name={name} is not an option.{suggestion(str(name), variants.options(group))}"


def _reject_unknown(node: dict[str, Any], schema: type, prefix: str) -> None:
    known = {f.name: f.type for f in fields(schema)}
    for key, value in node.items():
        if key not in known:
            raise ConfigProblem(unknown_key(f"{prefix}{key}"))
        inner = known[key]
        if not (isinstance(inner, type) and is_dataclass(inner) and isinstance(value, dict)):
            continue
        if prefix or key not in schemas():
            _reject_unknown(value, inner, f"{prefix}{key}.")
