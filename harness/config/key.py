"""What a schema says about one key: who reads it, and which values it may have."""

from dataclasses import field
from numbers import Real
from typing import TYPE_CHECKING, Any

from harness.errors import ConfigProblem, suggestion

ONLY = {"only": True}
_WANTED = {  # words of omegaconf's about a value of the wrong type
    "could not be converted to Integer": "a whole number",
    "could not be converted to Float": "a number",
    "is not a valid bool": "true or false",
    "is not a ListConfig": "a list: [a,b]",
}


def wanted(said: str) -> str:
    """What kind of value a type error of omegaconf's asks for, in words; empty for another error."""
    return next((meant for sign, meant in _WANTED.items() if sign in said), "")


def one_of(key: str, value: Any, known: tuple[str, ...]) -> None:
    """Raise ConfigProblem unless `value` is one of `known`."""
    if value not in known:
        raise ConfigProblem(f"{key}={value} is not possible.{suggestion(str(value), known)}")


def number(key: str, value: Any) -> None:
    """Raise ConfigProblem when `value` is given and is no number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
        raise ConfigProblem(f"{key}={value} is not possible: give a number.")


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
