"""Suggestions for unknown keys and options."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness import variants
from harness.config.option import HIDDEN, readable, schemas
from harness.config.schema import KEYS, Config
from harness.config.synonyms import synonym
from harness.errors import suggestion


def block(name: str) -> dict[str, Any]:
    """The keys of a section that is no group, as `restore`, with their defaults; none of any other name."""
    inner: Any = {f.name: f.type for f in fields(Config)}.get(name)
    section = isinstance(inner, type) and is_dataclass(inner) and name not in schemas()
    return vars(inner()) if section else {}


def unknown_key(key: str) -> str:
    """That `key` (dotted) is no key, with the nearest one: of all, or with the same last part."""
    if (
        key.partition(".")[0] == "experiment"
    ):  # a file of that group whose keys Hydra puts below its name
        return "the YAML of an experiment needs `# @package _global_` as its first line."
    full = [*KEYS, "experiment", *_dotted()]
    names = {last.rpartition(".")[2]: last for last in reversed(full)} | {k: k for k in full}
    word, last = key.lower(), key.lower().rpartition(".")[2]
    near = [last] * (last in names) or get_close_matches(word, names, n=1, cutoff=0.65)
    near = near or get_close_matches(last, names, n=1, cutoff=0.7)
    hint = f" Did you mean '{names[near[0]]}'?" if near else suggestion("", KEYS)
    return f"'{key}' is not a key of the configuration.{hint}"


def unknown_option(group: str, option: str) -> str:
    """That `option` is none of `group`, with what was probably meant."""
    return f"'{option}' is not an option of {group}.{_meant(group, option)}"


def _meant(group: str, option: str) -> str:
    if group == "model" and (option.startswith((".", "~", "/")) or Path(option).exists()):
        return f" Did you mean model=path model.path={option}?"
    if group == "model" and "/" in option:
        return " Nothing is downloaded; for a model on this machine: model=path model.path=DIR"
    if known := synonym(group, option):
        return f" Did you mean '{known}'?"
    hint = " For words of your own: text='...'." if group == "prompt" else ""
    return suggestion(option, variants.options(group)) + hint


def _dotted() -> Iterator[str]:
    """Every key below a section or a group; those of tasks last."""
    for name in (f.name for f in fields(Config)):
        yield from (f"{name}.{key}" for key in block(name))
    for group in sorted(schemas(), key=lambda group: group == "task"):
        keys = {key for option in variants.sound(group) for key in readable(group, option)}
        yield from (f"{group}.{key}" for key in sorted(keys - {*HIDDEN}))
