"""Classes that somebody gave themselves, not by a name: found by `module.Class` for as long as this process lives."""

from typing import Any

classes: dict[str, type[Any]] = {}  # module.Class -> the class


def vouched(kind: type) -> str:
    """`module.Class` of a class that somebody gave: what a setting, or a snapshot, that names it is served by."""
    target = f"{kind.__module__}.{kind.__name__}"
    classes[target] = kind
    return target
