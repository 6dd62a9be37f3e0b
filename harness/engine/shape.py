"""What a server's answer has to look like, as data, and one function that holds it to that.

A shape is a `Leaf`, `[shape]` for a list of it, `{key: shape}` for an object (`"key?"`: absent or null is fine,
others are ignored), `{TEXT: shape}` for an object with any keys.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SLACK = 1e-3  # by which rounding puts a log-probability above 0
WHOLE = 2**53  # numbers below are whole in every JSON reader
SHOWN = 60


class ShapeError(ValueError):
    """An answer of another shape. where: its place, `choices[0].text`; found: what stands there; wanted."""

    def __init__(self, where: str, found: Any, wanted: str):
        self.where, self.found, self.wanted = where or "the answer", brief(found), wanted
        super().__init__(f"{self.where} is {self.found}, not {wanted}")


@dataclass(frozen=True)
class Leaf:
    """One value. name: in words."""

    name: str
    fits: Callable[[Any], bool]


def _text(value: Any) -> bool:
    """A string that can be written again: half a surrogate pair cannot."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _number(value: Any) -> bool:
    """No boolean, nothing that is not a number, no integer that a float cannot hold."""
    if type(value) is int:
        return abs(value) < WHOLE
    return type(value) is float and not math.isnan(value)


OBJECT: dict[str, Any] = {}  # with anything in it
TEXT = Leaf("text", _text)
FLAG = Leaf("true or false", lambda value: isinstance(value, bool))
COUNT = Leaf("a whole number", lambda value: type(value) is int and abs(value) < WHOLE)
TOKEN = Leaf("a token's id", lambda value: type(value) is int and 0 <= value < 2**31)
TIME = Leaf("a time", lambda value: _number(value) and 0 <= value < math.inf)
LOGPROB = Leaf("a log-probability", lambda value: _number(value) and value <= SLACK)


def hold(value: Any, shape: Any, where: str = "") -> Any:
    """`value`. Raises ShapeError at the first place where it is of another shape."""
    if isinstance(shape, Leaf):
        if not shape.fits(value):
            raise ShapeError(where, value, shape.name)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ShapeError(where, value, "a list")
        for place, item in enumerate(value):
            hold(item, shape[0], f"{where}[{place}]")
    else:
        if not isinstance(value, dict):
            raise ShapeError(where, value, "an object")
        for key, wanted in shape.items():
            if isinstance(key, Leaf):
                for named, item in value.items():
                    hold(named, key, f"a key of {where}")
                    hold(item, wanted, f"{where}.{brief(named)}")
                continue
            known = key.removesuffix("?")
            if value.get(known) is not None or known == key:
                hold(value.get(known), wanted, f"{where}.{known}" if where else known)
    return value


def brief(value: Any) -> str:
    """`value` in a few characters."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    return "null" if value is None else ascii(value)[:SHOWN]
