"""One option of a group as a typed object: the group's shared keys, and its own from its YAML.

`option("prune", "snapkv", ratio=0.5, window=16)` is an instance of a subclass of `PruneConfig` with
the fields that `conf/prune/snapkv.yaml` adds, typed by their defaults there. `misread` says which
keys of a group's node the chosen option does not read, and who would.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import field, fields, make_dataclass
from difflib import get_close_matches
from functools import cache, partial
from typing import Any

from harness import variants
from harness.config.key import typed
from harness.config.schema import Config
from harness.errors import ConfigProblem, suggestion

NAMES = ("name", variants.TARGET)
HIDDEN = (*NAMES, "reads")  # what a YAML says, and nobody types
ELSEWHERE = {  # what the library calls otherwise
    "max_new_tokens": " How many tokens are generated, steps=N says.",
    "stop_strings": " Texts that end it: stop=[TEXT].",
    "do_sample": " Whether tokens are drawn says the option: sampling=sample, or greedy.",
}
UNREAD = "unread"  # in a task's YAML: what is told when it is typed; no key of the configuration


@cache
def schemas() -> dict[str, type]:
    """Group -> the dataclass of its shared keys."""
    known = {f.name: f.type for f in fields(Config)}
    return {n: t for n, t in known.items() if isinstance(t, type) and hasattr(t, "name")}


def shared(group: str) -> dict[str, Any]:
    """The keys that every option of `group` reads but `none`, with their defaults."""
    return {f.name: _default(f) for f in fields(schemas()[group])
            if f.name != "name" and not f.metadata.get("only")}  # fmt: skip


def readable(group: str, option: str) -> set[str]:
    """Every key that the option reads."""
    common = set() if option == "none" else set(shared(group))
    return {*NAMES, *variants.signature(group, option), *common} - {UNREAD}


def schema_of(group: str, option: str, node: Mapping[str, Any] | None = None) -> type:
    """The dataclass of one option. node: its keys as composed or recorded, for an option from
    outside whose YAML is not there any more."""
    written = variants.signature(group, option) or dict(node or {})
    base = schemas()[group]
    known = {f.name for f in fields(base)}
    listed = {k: v for k, v in written.items() if k not in known}
    return _subclass(base, option, _Keys(listed)) if listed else base


def option(group: str, name: str, /, **keys: Any) -> Any:
    """The typed option with `keys` in place of its defaults. The budget and such that its YAML gives
    to shared keys are left out: they belong to the command line.

    Raises ConfigProblem for an unknown option and for a key that it does not read.
    """
    if not isinstance(name, str):
        raise ConfigProblem(f"{group} is {name!r}: give the name of an option.")
    variants.check(group, group, [name])
    if problem := misread(group, [name], keys):
        raise ConfigProblem(problem)
    schema = schema_of(group, name)
    suited(group, schema, keys)
    return schema(name=variants.built_by(group, name), **keys)


def suited(group: str, schema: Any, keys: Mapping[str, Any]) -> None:
    """Raise ConfigProblem when one of `keys` is not of the type that `schema`, a dataclass, declares."""
    for f in fields(schema):
        if f.name in keys:
            typed(f"{group}.{f.name}", keys[f.name], f.type)


def sibling(group: str, cfg: Any, name: str, /, **keys: Any) -> Any:
    """The option `name` with the shared keys of the one that `cfg` chose (all of them where that is the option
    already), and those of `keys` that it reads. A shared key that its own YAML gives is that where nothing else was
    chosen."""
    variants.check(group, group, [name])
    settings, reads, usual = getattr(cfg, group), readable(group, name), shared(group)
    here = name == cfg.called.get(group, settings.name)
    both = {k: getattr(settings, k) for k in (reads if here else usual) if hasattr(settings, k)}
    written = {} if here else variants.signature(group, name)
    both |= {k: v for k, v in written.items() if k in usual and both.get(k, usual[k]) == usual[k]}
    both |= keys | {"name": variants.built_by(group, name)}
    return schema_of(group, name)(**{k: v for k, v in both.items() if k in {*reads, "name"}})


def completed(group: str, settings: Any) -> Any:
    """`settings` with its option's own keys at their defaults, where they are missing."""
    schema = schema_of(group, settings.name)
    if all(hasattr(settings, f.name) for f in fields(schema)):
        return settings
    known = {f.name for f in fields(schema)}
    return schema(
        **{f.name: getattr(settings, f.name) for f in fields(settings) if f.name in known}
    )


def misread(group: str, chosen: Iterable[str], keys: Iterable[str]) -> str | None:
    """What is wrong with `keys` when none of the `chosen` options reads one of them, or None."""
    chosen = list(chosen)
    reads = set().union(*(readable(group, option) for option in chosen))
    for key in keys:
        if key in reads:
            continue
        known = variants.sound(group)
        able = [o for o in known if key in readable(group, o)]
        if able:
            misses = " or ".join(f"{group}={o}" for o in chosen)
            return f"{group}.{key} is not read by {misses}: {readers(group, able)}"
        near = _nearest(group, chosen[0], key, reads)
        return f"'{group}.{key}' is not a key of the configuration.{near}"
    return None


def _nearest(group: str, chosen: str, key: str, reads: Iterable[str]) -> str:
    """The key that was probably meant: one that the chosen option `reads`, a common one, or another option's."""
    if key in {f.name for f in fields(Config)} - schemas().keys():
        return f" Did you mean '{key}'? It stands by itself: {key}=..."
    if key in ELSEWHERE:
        return ELSEWHERE[key]
    own = sorted({*reads} - {*HIDDEN})
    others = {k: o for o in variants.sound(group) for k in readable(group, o) - {*HIDDEN}}
    if near := get_close_matches(key, sorted({*own, *others}), 1, 0.6):
        reader = "" if near[0] in own else f", which {group}={others[near[0]]} reads"
        return f" Did you mean '{group}.{near[0]}'{reader}?"
    return suggestion(key, own) if own else f" {group}={chosen} has no key of its own."


def unasked(cfg: Config) -> str | None:
    """What is wrong when `cfg` gives a common key that its task does not read."""
    reads = variants.signature("task", cfg.task.name).get("reads", [])
    for f in fields(cfg):
        value = getattr(cfg, f.name)
        if f.name not in cfg.ASKED or f.name in reads or value == _default(f):
            continue
        setting = f"{f.name}={str(value).lower() if isinstance(value, bool) else value}"
        return f"{setting} is not read by task={cfg.task.name}: {readers('task', askers(f.name))}"
    return None


def askers(key: str) -> list[str]:
    """The tasks that read a common key."""
    known = variants.sound("task")
    return [t for t in known if key in variants.signature("task", t).get("reads", [])]


def readers(group: str, able: list[str]) -> str:
    """Who reads a key that the chosen option does not, as the end of a message."""
    shown = ", ".join(f"{group}={o}" for o in able[:8])
    more = f" and {len(able) - 8} more" if able[8:] else ""
    verb = "read" if able[1:] else "reads"
    return f"{shown}{more} {verb} it. Choose that, or leave the key out."


class _Keys(dict):
    """A mapping that can be a cache's key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(sorted(self.items(), key=lambda pair: pair[0])))


@cache
def _subclass(base: type, option: str, keys: _Keys) -> type:
    typed = [(key, _type(value), _field(value)) for key, value in keys.items()]
    name = "".join(part.capitalize() for part in option.split("_")) + base.__name__
    return make_dataclass(name, typed, bases=(base,))


def _field(value: Any) -> Any:
    if isinstance(value, list | dict):
        return field(default_factory=lambda: deepcopy(value))
    return field(default=value)


def _type(value: Any) -> Any:
    """The type that a YAML default declares; a list's by its elements."""
    if isinstance(value, list):
        kinds = {type(v) for v in value}
        if kinds == {int, float}:
            kinds = {float}
        return list[kinds.pop()] if len(kinds) == 1 and kinds <= {int, float, bool, str} else list[Any]  # type: ignore[misc]  # fmt: skip
    if isinstance(value, dict):
        return dict[str, Any]
    return type(value) if isinstance(value, bool | int | float | str) else Any


def common() -> type:
    """`Config` with its common keys typed and each group a mapping of its shared keys."""
    rest = [(f.name, f.type, f) for f in fields(Config) if f.name not in schemas()]
    rest = [(name, kind, field(default=f.default, default_factory=f.default_factory)) for name, kind, f in rest]  # fmt: skip
    groups = [(g, Any, field(default_factory=partial(shared, g))) for g in schemas()]
    return make_dataclass("Common", [*rest, *groups])


def _default(f: Any) -> Any:
    return f.default if f.default_factory is NO_DEFAULT else f.default_factory()
