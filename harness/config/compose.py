"""From YAML and overrides to a checked `Config`; composition errors as one plain message.

Only here and in `__main__` are hydra and omegaconf known, and only inside functions.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from harness import keys, variants
from harness.config import called, culprit, tracking
from harness.config.choice import chosen
from harness.config.key import WHOLE, ungiven, unset, wanted
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
from harness.config.schema import KEYS, Config
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


def typed(cfg: Any, swept: Sequence[str] = (), record: bool = False) -> Config:
    """Turn a composed DictConfig into a checked `Config`; a key that nothing reads is an error.

    swept: the overrides of the sweep that this is a point of: a key that one of its options reads is
    no mistake where another does not. record: keys that nothing reads are left out.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    written = OmegaConf.to_container(cfg, resolve=False)
    kinds = check_keys(written, swept, record)
    try:
        for key in () if record else sorted(OmegaConf.missing_keys(cfg)):
            raise ConfigProblem(ungiven(f"{key}=???"))
        checked: Any = OmegaConf.to_object(OmegaConf.merge(_schema(**kinds), written))
    except OmegaConfBaseException as problem:
        if not record and (said := culprit.reference(str(problem))):
            raise ConfigProblem(said) from problem
        key = getattr(problem, "full_key", None) or "a key"
        first = str(problem).splitlines()[0]
        setting = key
        if of := re.match(r"While dereferencing interpolation '(.+)': Value '(.*?)' ", first):
            setting = f"{key}={of[2]} (which is {of[1]})"
        elif "." in key and not unset(first):
            value = OmegaConf.select(cfg, key)
            setting = key if value is None else f"{key}={value}"
        said = (
            f" is not possible: give {meant}.{culprit.in_brackets(setting)}"
            if (meant := wanted(first))
            else f": {unset(first) or first}"
        )
        raise ConfigProblem(
            ("" if record else culprit.giver(setting)) + setting + said
        ) from problem
    for block in (checked, checked.prompt, checked.model):
        for key in (f.name for f in fields(block) if isinstance(getattr(block, f.name), str)):
            setattr(block, key, plain(getattr(block, key)))
    called.check(checked.called)
    if not record:
        tracking.check(checked.track)
    if not record and (unread := unasked(checked, chosen("task", swept) if swept else ())):
        raise ConfigProblem(unread)
    return checked


def check_keys(
    written: dict[str, Any], swept: Sequence[str] = (), record: bool = False
) -> dict[str, type]:
    """The dataclass of each group's chosen option. Raises ConfigProblem for a key that nothing reads. written: a
    composed configuration as plain values, its groups are left with what their options read. Others as of
    `typed`."""
    kinds = {}
    _reject_unknown(written, Config, "")
    for group in schemas():
        node = written.get(group)
        if not isinstance(node, dict):
            continue
        node = written[group] = _read_by(group, node, swept, record)
        kinds[group] = schema_of(group, str(node.get("name")), node)
    return kinds


@cache
def _schema(**kinds: type) -> Any:
    """`Config` with each group as its chosen option has it. Not to be changed."""
    from omegaconf import OmegaConf

    schema = OmegaConf.structured(Config)
    for group, kind in kinds.items():
        schema[group] = OmegaConf.structured(kind)
    return schema


def _read_by(
    group: str, node: dict[str, Any], swept: Sequence[str], record: bool
) -> dict[str, Any]:
    """`node` without what its option does not read: defaults of the group, and keys for the others
    of a sweep. Raises ConfigProblem for any other."""
    name, node = str(node.get("name")), {k: v for k, v in node.items() if k != UNREAD}
    if name not in variants.options(group):
        if not record and (problem := _misnamed(group, node)):
            raise ConfigProblem(problem)
        return node  # its YAML is not there, as in a sweep's workers: the node is all there is
    reads, usual = readable(group, name), shared(group)
    strange = [k for k, v in node.items() if k not in reads and not (k in usual and v == usual[k])]
    if strange and not record:
        several = {name, *chosen(group, swept)} if swept else {name}
        for key in strange:
            if problem := misread(group, [name, *sorted(several - {name})], [key]):
                raise ConfigProblem(f"{culprit.setter(f'{group}.{key}')}{problem}")
    return {k: v for k, v in node.items() if k in reads}


def _misnamed(group: str, node: dict[str, Any]) -> str | None:
    """What is wrong where the `name` of a chosen option is none of the group's; None where it may be one."""
    every, name = variants.sound(group), node.get("name")
    wrong = [o for o in every if variants.signature(group, o).get("name") == name]
    if not name:  # one that inherits has another's
        wrong = [o for o in wrong if not variants.inherited(group, o) and {*variants.own(group, o)} <= {*node}]  # fmt: skip
    if wrong:
        typed = chosen(group, sys.argv[1:])
        return variants.misnamed(group, min(wrong, key=lambda option: option not in typed))
    if variants.TARGET in node and name:
        return None
    if not name:
        return f"no option of {group} is chosen: {group}=OPTION. {WHOLE}"
    return f"{group}.name={name} is not an option.{suggestion(str(name), variants.options(group))}"


def _reject_unknown(node: dict[str, Any], schema: type, prefix: str) -> None:
    known = {f.name: f.type for f in fields(schema)}
    for key, value in node.items():
        if key not in known:
            near = suggestion(key, [k for k in known if prefix or k in KEYS])
            raise ConfigProblem(f"'{prefix}{key}' is not a key of the configuration.{near}")
        inner = known[key]
        grouped = not prefix and key in schemas()
        if (
            not grouped
            and isinstance(inner, type)
            and is_dataclass(inner)
            and isinstance(value, dict)
        ):
            _reject_unknown(value, inner, f"{prefix}{key}.")
