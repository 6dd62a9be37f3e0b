"""What kind of value a key of the command line takes."""

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from harness import variants
from harness.config.key import CHOICES
from harness.config.option import schemas
from harness.config.schema import Config


def hint(key: str) -> Any:
    """The type that `key` (dotted) declares, for one of a group the type of its default; None where nobody says."""
    group, _, inner = key.partition(".")
    if group in schemas() and inner:
        declared = {f.name: f.type for f in fields(schemas()[group])}
        options = (variants.signature(group, option) for option in variants.sound(group))
        usual = (keys[inner] for keys in options if keys.get(inner) is not None)
        return declared.get(inner) or next(map(type, usual), None)
    schema: Any = Config
    for part in key.split("."):
        known = {f.name: f.type for f in fields(schema)} if is_dataclass(schema) else {}
        schema = known.get(part)
    return schema


def listed(key: str) -> bool:
    """Whether it takes a list."""
    return any((get_origin(one) or one) is list for one in _kinds(key))


def worded(key: str) -> bool:
    """Whether a value of it may have a comma: a text, or of a kind that nobody says."""
    return key not in CHOICES and any(one in (str, None, Any) for one in _kinds(key))


def switched(key: str) -> bool:
    """Whether it is true or false."""
    return bool in _kinds(key)


def _kinds(key: str) -> tuple[Any, ...]:
    said = hint(key)
    union = get_args(said) if get_origin(said) is not list else ()
    return union or (said,)
