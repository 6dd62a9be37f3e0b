"""Classes that somebody gave themselves, not by a name: found by `module.Class` for as long as this process lives."""

from typing import Any

classes: dict[str, type[Any]] = {}  # module.Class -> the class


def vouched(kind: type) -> str:
    """`module.Class` of a class that somebody gave: what a setting, or a snapshot, that names it is served by."""
    target = f"{kind.__module__}.{kind.__name__}"
    classes[target] = kind
    return target


def serving(target: str) -> type | None:
    """The class that serves what names `target`: that one, or the one class of its name, where a script that wrote under
    `__main__` keeps it in a module by now, or the other way round."""
    alike = [
        kind
        for name, kind in classes.items()
        if name.rpartition(".")[2] == target.rpartition(".")[2]
    ]
    own = "__main__" in {target.partition(".")[0], *(kind.__module__ for kind in alike)}
    return classes.get(target) or (alike[0] if own and len(alike) == 1 else None)
