"""What a task takes several of, each in its turn (policies, quantizers, caches), in place of the one that its
configuration holds unread."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.config import literal

LISTS = {"prune": "prunes", "quantize": "quantizers", "cache": "caches", "dtype": "dtypes",
         "task.asked": "asked"}  # fmt: skip
BETWEEN = re.compile(
    r"""('[^']*'|"[^"]*")|,\s*"""
)  # two values, or a quotation to be left as it is
LIST = re.compile(r"\[[^\[\]]+\]")  # as it is typed
WORD = re.compile(r"[^\s,\[\]{}\"']+")  # a value that needs no quotation marks
RATIO, BUDGETS = "prune.ratio", "budgets"  # of a policy


def options(config: Mapping[str, Any]) -> dict[str, str]:
    """Parameters by name (`prune`: `none, keydiff`) for the lists of the task of a whole `config`; none of a
    list that is empty, since then the option counts."""
    task = config.get("task") or {}
    lists = {key: task.get(name) for key, name in LISTS.items()}
    if any(policy != "none" for policy in lists["prune"] or ()):
        lists[RATIO] = task.get(BUDGETS)
    return {key: joined(list(dict.fromkeys(several))) for key, several in lists.items() if several}


def of_sweep(config: Mapping[str, Any], axes: Mapping[str, str]) -> dict[str, str]:
    """The same of a sweep, with all that its points take of a list that it varies; none of a list of which it varies
    an entry, or that refers to other keys. axes: key -> what was typed."""
    task = dict(config.get("task") or {})
    for key, typed in axes.items():
        group, _, name = key.partition(".")
        if group == "task" and name.partition(".")[0] in task:
            held = [literal.values(found) or [] for found in LIST.findall(typed)]
            task[name.partition(".")[0]] = [value for values in held for value in values]
    told = options({**config, "task": task})
    return {key: values for key, values in told.items() if "${" not in values}


def joined(values: Sequence[Any]) -> str:
    """A list in the one notation that parameters have: `none, keydiff`; as JSON where its values are no plain words."""
    words = [value if isinstance(value, str) else json.dumps(value) for value in values]
    plain = words and all(map(WORD.fullmatch, words))
    return ", ".join(words) if plain else json.dumps(values)


def spaced(values: str) -> str:
    """What was typed in that notation: the list `[none,keydiff]` and the several values `none,keydiff` of a sweep are
    `none, keydiff`."""
    held = literal.values(values) if LIST.fullmatch(values) else None
    return bracketed(values) if held is None else joined(held)


def bracketed(values: str) -> str:
    """The same with a list in its brackets, as older versions told it."""
    return BETWEEN.sub(lambda found: found[1] or ", ", values)
