"""What a schema says about one key: who reads it, and which values it may have."""

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
