"""Engines that run in this process: greedy tokens from a function that feeds ids and returns logits."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.engine.base import Answer

Feed = Callable[[Sequence[int]], Any]  # new ids -> logits `[vocab]` after the last, any array


def answer(feed: Feed, ids: Sequence[int], steps: int, top: int, reused: int) -> Answer:
    """Feed `ids`, then `steps` greedy tokens one by one. Mutates whatever `feed` keeps."""
    start = time.perf_counter()
    tokens, tops = [], []
    logits = feed(ids)
    for step in range(steps):
        most = most_probable(logits, top)
        tops.append(most)
        tokens.append(next(iter(most)))
        if step + 1 < steps:
            logits = feed(tokens[-1:])
    return Answer(tuple(tokens), tuple(tops), reused, None, time.perf_counter() - start)


def most_probable(logits: Any, top: int) -> dict[int, float]:
    """The `top` most probable ids with their log-probabilities in nats, the first one first."""
    values = np.asarray(logits, dtype=np.float64)
    peak = values.max()
    values = values - peak - np.log(np.exp(values - peak).sum())
    best = np.argpartition(-values, min(top, len(values)) - 1)[:top]
    best = best[np.lexsort((best, -values[best]))]
    return {int(i): float(values[i]) for i in best}


def in_chunks(feed: Feed, chunk: int) -> Feed:
    """The same, at most `chunk` ids at a time."""

    def smaller(ids: Sequence[int]) -> Any:
        for start in range(0, len(ids), chunk):
            logits = feed(ids[start : start + chunk])
        return logits

    return smaller
