"""Configurations as files keep them: plain data. Whoever reads one resolves nothing that it refers to, however that is
written; whoever writes one puts in place what it refers to."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from harness import foreign, variants
from harness.config.compose import registered, typed
from harness.config.literal import carried, uncarried
from harness.config.option import UNREAD, readable, schemas
from harness.config.schema import Config, PluginsConfig
from harness.errors import ConfigProblem

FILE = Path(".hydra", "config.yaml")
LISTS = {
    "prunes": "prune",
    "quantizers": "quantize",
    "caches": "cache",
}  # options that a task names


def settled(cfg: Any) -> Any:
    """`cfg`, composed, with everything that it refers to in place; the object itself where one says nothing."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.create(_each(carried, OmegaConf.to_container(cfg, resolve=True)))
    except OmegaConfBaseException:
        return cfg


def written(folder: Path, values: Mapping[str, Any]) -> None:
    """Make the configuration of the run in `folder` say what it really ran with, which a snapshot may have told it.
    Nothing where there is no such file. Raises OSError."""
    from omegaconf import OmegaConf

    if (folder / FILE).is_file():
        tree = OmegaConf.create(_each(carried, _read(values)))
        (folder / FILE).write_text(OmegaConf.to_yaml(tree), "utf-8")


def _read(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` without the shared keys that the chosen options do not read: given by hand they are refused."""
    held = dict(values)
    for group, base in schemas().items():
        if isinstance(node := held.get(group), dict):
            unread = {f.name for f in fields(base)} - readable(group, str(node["name"]))
            held[group] = {k: v for k, v in node.items() if k not in unread}
    return held


def values(path: Path) -> dict[str, Any]:
    """What a configuration holds. Raises ConfigProblem where it holds none, or a variable; OSError."""
    try:
        tree = foreign.read_yaml(path)
    except ValueError as problem:
        raise ConfigProblem(f"{path} is no configuration: {problem}") from None
    if not isinstance(tree, dict):
        raise ConfigProblem(f"{path} is no configuration: it holds no keys")

    def plain(text: str) -> str:
        if (found := uncarried(text)) is not None:
            return found
        if "${" in text:
            raise ConfigProblem(f"{path} holds the variable {text[:80]!r}, which no record needs.")
        return text

    held: dict[str, Any] = _each(plain, tree)
    return held


def composed(path: Path) -> dict[str, Any] | None:
    """A point's configuration as plain values, unchecked: what it was asked where that is no sound one. None where it
    cannot even be read."""
    try:
        tree = values(path)
    except (ConfigProblem, OSError):
        return None
    groups = {k: v for k, v in tree.items() if isinstance(v, dict) and "name" in v}
    plain_groups = {
        k: {i: v for i, v in g.items() if i not in ("reads", UNREAD)} for k, g in groups.items()
    }
    return {**tree, **plain_groups}


def recorded(tree: Any, where: Any, plugins: PluginsConfig | None = None) -> Config:
    """The checked `Config` of a record's values. What they name outside of the harness needs `plugins.trust`; keys
    that nothing reads any more are left out. Raises ConfigProblem, UntrustedPlugin.

    where: the record, for messages. plugins: what the reader allows, in place of what the record says.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    registered()
    try:
        for group in schemas():
            _check_option(where, group, tree.get(group))
        for key, group in LISTS.items():
            for name in tree["task"].get(key) or ():
                _check_option(where, group, {"name": name})
        for target in tree["compare"].get("metrics") or ():
            variants.refuse_untrusted(str(where), "compare.metrics", str(target))
        held = {**_each(carried, tree), "plugins": asdict(plugins or PluginsConfig())}
        return typed(OmegaConf.create(held), record=True)
    except (
        *(OmegaConfBaseException, ValueError, TypeError, AttributeError, LookupError),
        RecursionError,
    ) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ConfigProblem(f"{where} holds no configuration: {first}") from None


def _check_option(where: Any, group: str, node: Any) -> None:
    """What a record may name: an option as this package ships it, or one that is trusted."""
    if node is None:
        return
    name, target = node.get("name"), node.get(variants.TARGET)
    if target is None and name in variants.outside(group):
        target = variants.signature(group, name).get(variants.TARGET)
    ours = name in variants.options(group, variants.conf_dir())
    if target is not None and not (
        ours and target == variants.signature(group, name).get(variants.TARGET)
    ):
        variants.refuse_untrusted(str(where), f"{group}={name}", str(target))


def _each(change: Any, value: Any) -> Any:
    """`value` with every text in it changed; keys are no texts: nothing resolves them."""
    if isinstance(value, dict):
        return {key: _each(change, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_each(change, inner) for inner in value]
    return change(value) if isinstance(value, str) else value
