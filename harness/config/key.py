"""What a schema says about one key: who reads it, and which values it may have."""

import re
from dataclasses import field
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from harness.errors import ConfigProblem, suggestion

ONLY = {"only": True}
CHOICES = {  # of keys that are one of a few words
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "model.attention": ("auto", "sdpa", "eager"),
    "cache.audit": ("digest", "fast"),
    "prune.positions": ("original", "reindexed"),
    "prune.budget": ("uniform", "pyramid", "adaptive"),
    "compare.require": ("exact", "equivalent", "drifted", "diverged"),
    "compare.require_pruned": ("exact", "equivalent", "drifted", "diverged"),
    "restore.device": ("auto", "cpu", "cuda"),
    "restore.verify": ("digest", "identity", "proof"),
}
_WANTED = {  # words of omegaconf's about a value of the wrong type
    "could not be converted to Integer": "a whole number",
    "could not be converted to Float": "a number",
    "is not a valid bool": "true or false",
    "is not a ListConfig": "a list: [a,b]",
    "is not Optional": "a value, or leave it out",
    "Incompatible value 'None'": "a value, or leave it out",
}

WHOLE = "The defaults of a primary config begin with `config` and end with `_self_`: `defaults: [config, _self_]`."


def wanted(said: str) -> str:
    """What kind of value a type error of omegaconf's asks for, in words; empty for another error."""
    return next((meant for sign, meant in _WANTED.items() if sign in said), "")


def unset(said: str) -> str:
    """What to do about what an error of omegaconf's misses, an environment variable or a key that another one
    names; empty for another error."""
    if "missing mandatory value: name" in said:
        return f"no file gives it a value. {WHOLE}"
    if key := re.search(r"Interpolation key '(.+?)' not found", said):
        return f"${{{key[1]}}} names no key of the configuration; `--cfg job` shows all of them."
    name = re.search(r"Environment variable '(.+?)' not found", said)
    if name is None:
        return ""
    return (
        f"there is no environment variable {name[1]}. Set it, or say what holds without it: "
        f"${{oc.env:{name[1]},VALUE}}"
    )


def ungiven(setting: str) -> str:
    """What to do about `KEY=???`, typed or in a file."""
    key = setting.partition("=")[0]
    return f"{setting}: `???` stands for a value that must be given: {key.lstrip('+')}=VALUE."


def one_of(key: str, value: Any, known: tuple[str, ...] = ()) -> None:
    """Raise ConfigProblem unless `value` is one of `known`, by default the key's own `CHOICES`."""
    known = known or CHOICES[key]
    if value not in known:
        raise ConfigProblem(f"{key}={value} is not possible.{suggestion(str(value), known)}")


def number(key: str, value: Any) -> None:
    """Raise ConfigProblem when `value` is given and is no number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
        raise ConfigProblem(f"{key}={value} is not possible: give a number.")


_KINDS: dict[Any, tuple[Any, str]] = {  # a declared type -> what may be given for it, in words
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    list: ((list, tuple), "a list"),
    dict: (dict, "a mapping"),
    NoneType: (NoneType, "None"),
}


def typed(key: str, value: Any, hint: Any) -> None:
    """Raise ConfigProblem when `value` is not of the type that a field declares (`hint`)."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    known = [_KINDS.get(get_origin(kind) or kind) for kind in kinds]
    if None in known:  # any
        return
    if not any(
        isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        for kind, _ in filter(None, known)
    ):
        said = " or ".join(words for _, words in filter(None, known))
        if key in CHOICES:
            said = f"{said}, {' or '.join(CHOICES[key])}"
        raise ConfigProblem(f"{key} is {value!r}: give {said}.")


def at_least(key: str, value: float | None, low: float) -> None:
    """Raise ConfigProblem when `value` is given and below `low`."""
    number(key, value)
    if value is not None and value < low:
        raise ConfigProblem(f"{key}={value} is too small: give {low} or more.")


def within(key: str, value: float, low: float, high: float) -> None:
    """Raise ConfigProblem unless `low <= value <= high`."""
    number(key, value)
    if not low <= value <= high:
        raise ConfigProblem(f"{key}={value} is not possible: give {low} to {high}.")


def only(default: Any) -> Any:
    """A field that is read by those options alone whose YAML lists it; the others hold `default`."""
    return field(default=default, metadata=ONLY)


class Open:
    """A group whose options have keys of their own, which only their YAML knows."""

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any: ...
