"""Seconds of something, without what is done once: compiled, imported, mapped or touched at its first time."""

import time
from collections.abc import Callable
from math import inf
from statistics import median
from typing import Any


def seconds(work: Callable[[], Any]) -> float:
    """Seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def settled(take: Callable[[], float], runs: int, most: float = inf) -> float:
    """The median of `runs` times that `take` gives, in seconds, after a first one that is not counted. None is begun
    once all of them took `most` seconds: a first one that long is the only one, and what is done once is little of it."""
    taken = [take()]
    while len(taken) <= runs and sum(taken) < most:
        taken.append(take())
    return median(taken[1:] or taken)
