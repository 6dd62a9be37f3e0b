"""The keys of an option's YAML, typed as Hydra types them."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import ConfigProblem

TARGET = "_target_"  # the key that names a class from outside
EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")  # 1e-3, 2E6, 1.5e3


def tree(path: Path) -> dict[str, Any]:
    """What the file holds now; not to be changed. Raises ConfigProblem where it cannot be read."""
    return _read(path, path.stat().st_mtime_ns)


def unreadable(path: Path | str, problem: Exception) -> str:
    """What is wrong with a YAML, and in which of its lines."""
    mark, why = getattr(problem, "problem_mark", None), getattr(problem, "problem", None)
    line = f", line {mark.line + 1}," if mark else ""
    return f"{path}{line} cannot be read: {why or str(problem).splitlines()[0]}."


@cache
def _read(path: Path, _stamp: int) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Floats as Hydra reads them: PyYAML alone takes `1e-3`, without a dot, for a text."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+0123456789"))
    try:
        tree = yaml.load(path.read_text("utf-8"), Loader) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise ConfigProblem(unreadable(path, problem)) from None
    if not isinstance(tree, dict):
        raise ConfigProblem(f"{path} holds no keys.")
    return tree
