"""A key that there is not: what was probably meant by it."""

import sys
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from harness import variants
from harness.config.option import UNREAD, readable, schemas
from harness.config.schema import KEYS, Config
from harness.errors import suggestion
from harness.variants import options

# Blocks of Hydra's own, which are typed below `hydra`.
OF_HYDRA = ("run", "sweep", "job", "launcher", "sweeper", "runtime", "callbacks", "job_logging")


def block(name: str) -> dict[str, Any]:
    """The keys of one block of the configuration that is no group, as `restore`, with their defaults; none of any other
    name."""
    inner: Any = {f.name: f.type for f in fields(Config)}.get(name)
    lone = isinstance(inner, type) and is_dataclass(inner) and name not in schemas()
    return vars(inner()) if lone else {}


def unknown_key(key: str, value: str) -> str | None:
    """A suggestion when `key` (dotted) is no common key; None when it is one, or a group's own."""
    schema: type = Config
    parts = key.split(".")
    if parts[0] in schemas():
        return None
    if parts[0] in OF_HYDRA and parts[1:]:
        return f" Did you mean 'hydra.{key}'?"
    if key in ("launcher", "sweeper"):
        return f" Did you mean 'hydra/{key}={value or 'NAME'}'?"
    for i, part in enumerate(parts):
        there = {f.name: f.type for f in fields(schema)}
        if part not in there:
            if i == 0 and parts[1:]:
                return _of_a_task(parts) or _dotted(parts)
            return _meant(part, value) if i == 0 else _nested(parts[:i], part, list(there))
        inner = there[part]
        if not (isinstance(inner, type) and is_dataclass(inner)):
            return None
        schema = inner
    return None


def hydra_key(above: str, key: str) -> str:
    """What Hydra has in place of `hydra.ABOVE.KEY`."""
    from hydra.conf import HydraConf
    from omegaconf import OmegaConf

    node = OmegaConf.select(OmegaConf.structured(HydraConf), above)
    if not OmegaConf.is_dict(node):  # of a plugin's, which only that knows
        return ""
    place = f"hydra.{above}".rstrip(".")
    return suggestion(key, list(map(str, node))).replace("mean '", f"mean '{place}.")


def plugin_key(kind: str, key: str, name: str) -> str:
    """Which of Hydra's plugins have `key`; where none has, what the one whose configuration is of the class
    `name` has in its place. kind: launcher, sweeper or sweeper.sampler."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    store, kind = ConfigStore.instance(), kind.replace(".", "/")
    files = [file for file in store.list(f"hydra/{kind}") if file.endswith(".yaml")]
    nodes = {f.removesuffix(".yaml"): store.load(f"hydra/{kind}/{f}").node for f in files}
    if able := [plugin for plugin, node in nodes.items() if key in node]:
        return f" It is one of {' and '.join(f'hydra/{kind}={plugin}' for plugin in sorted(able))}."
    kinds = {plugin: OmegaConf.get_type(node) or object for plugin, node in nodes.items()}
    mine = [nodes[p] for p, kind in kinds.items() if name in (c.__name__ for c in kind.__mro__)]
    known = sorted(
        {str(k) for n in mine for k in n if k != "defaults" and not str(k).startswith("_")}
    )
    return suggestion(key, known) if known else " It has none."


def _of_a_task(parts: list[str]) -> str:
    """For `port` and `ui.port`: that is `task.port`, which task=ui reads."""
    *above, key = parts
    tasks = [
        t
        for t in variants.sound("task")
        if key in variants.signature("task", t) and above in ([], [t])
    ]
    if not tasks or key in ("name", "reads", UNREAD):
        return ""
    return f" Did you mean 'task.{key}'? {' and '.join(f'task={t}' for t in tasks[:4])} read{'s' * (len(tasks) == 1)} it."


def _dotted(parts: list[str]) -> str:
    """For `prun.ratio`: the group or block that was probably meant, with that key; for any other what there is."""
    rest = ".".join(parts[1:])
    there = [*schemas(), *(f.name for f in fields(Config) if block(f.name)), "hydra"]
    near = suggestion(parts[0], there)
    return (
        near.replace("'?", f".{rest}'?") if "mean" in near else f"{near} (Each is GROUP.KEY=VALUE.)"
    )


def _run_together(part: str) -> str:
    """For `trackuri` and `track_uri`: `track.uri`; empty where there is no such key."""
    known = {
        group: set().union(*(readable(group, o) for o in variants.sound(group)))
        for group in schemas()
    }
    known |= {f.name: {*block(f.name)} for f in fields(Config) if f.name not in known}
    whole = {_bare(f"{name}{key}"): f"{name}.{key}" for name, keys in known.items() for key in keys}
    near = get_close_matches(_bare(part), whole, n=1, cutoff=0.85)
    return f" Did you mean '{whole[near[0]]}'?" if near else ""


def _bare(word: str) -> str:
    return word.lower().replace("_", "").replace(".", "")


def _nested(above: list[str], part: str, known: list[str]) -> str:
    return suggestion(part, known).replace("mean '", f"mean '{'.'.join(above)}.")


def _typed(group: str) -> list[str]:
    """The options of `group` on this command line."""
    values = (a.partition("=")[2] for a in sys.argv[1:] if a.startswith(f"{group}="))
    return [option for value in values for option in value.split(",") if option in options(group)]


def _meant(part: str, value: str) -> str:
    """Also `temperature` for `sampling.temperature`, and `format=gzip` for `save=gzip`, where only
    one group fits."""
    top = [*KEYS, "experiment"]
    owners: dict[str, list[str]] = {}
    for group in schemas():
        known = set().union(*(readable(group, option) for option in variants.sound(group)))
        for inner in known if group != "task" else ():
            owners.setdefault(inner, []).append(group)
    named = [g for g in owners.get(part, ()) if any(part in readable(g, o) for o in _typed(g))]
    if len(named) == 1:
        return f" Did you mean '{named[0]}.{part}'?"
    if part not in (*owners, *top) and (near := _of_a_task([part]) or _run_together(part)):
        return near
    nested = {k: f"{o[0]}.{k}" for k, o in owners.items() if len(o) == 1}
    groups = [n for n in schemas() if value in options(n) and value != "none"]
    if part not in nested and part.lower() not in top and len(groups) == 1:
        return f" Did you mean '{groups[0]}={value}'?"
    close = get_close_matches(part, [k for k in nested if k not in top], n=1, cutoff=0.7)
    near = suggestion(part, [*top, *close])
    for key, full in nested.items():
        if key not in top:
            near = near.replace(f"'{key}'", f"'{full}'")
    return near if "Did you mean" in near else suggestion(part, top)
