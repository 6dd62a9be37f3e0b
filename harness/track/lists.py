"""What a task takes several of, each in its turn (policies, quantizers, caches), in place of the one that its
configuration holds unread."""

import re
from collections.abc import Mapping
from typing import Any

LISTS = {"prune": "prunes", "quantize": "quantizers", "cache": "caches", "dtype": "dtypes",
         "task.asked": "asked"}  # fmt: skip
BETWEEN = re.compile(
    r"""('[^']*'|"[^"]*")|,\s*"""
)  # two values, or a quotation to be left as it is
RATIO, BUDGETS = "prune.ratio", "budgets"  # of a policy


def options(config: Mapping[str, Any]) -> dict[str, str]:
    """Parameters by name (`prune`: `none, keydiff`) for the lists of the task of a whole `config`; none of a
    list that is empty, since then the option counts."""
    task = config.get("task") or {}
    lists = {key: task.get(name) for key, name in LISTS.items()}
    if any(policy != "none" for policy in lists["prune"] or ()):
        lists[RATIO] = task.get(BUDGETS)
    return {
        key: ", ".join(map(str, dict.fromkeys(several)))
        for key, several in lists.items()
        if several
    }


def spaced(values: str) -> str:
    """Several values as they were typed, in the form that `options` has: `none,keydiff` is `none, keydiff`."""
    return BETWEEN.sub(lambda found: found[1] or ", ", values)
