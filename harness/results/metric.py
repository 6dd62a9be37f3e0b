"""Figures of two sets of logits: those of the house, and whatever somebody registers with `@harness.metric`.

A metric is one function of `restored`, `reference` `[batch, steps, vocab]` and `next_ids` `[batch, steps]`. It is measured of
the restored run and of every plain path, so that it has a noise floor, and is in console, page, CSV, MLflow and audit.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.errors import ConfigProblem
from harness.results.fact import Fact

_KNOWN: dict[str, "Metric"] = {}


class Metric:
    """A function with its Fact; called as the function is. name: under which a record has its value."""

    def __init__(self, function: Callable[..., float], told: Fact):
        self.function, self.fact = function, told
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, restored: Any, reference: Any, next_ids: Any) -> float:
        return float(self.function(restored, reference, next_ids))


def metric(
    label: str, unit: str = "", format: str = ".3g", better: str = "lower"
) -> Callable[[Callable[..., float]], Metric]:
    """Make a metric of a function; its first line of documentation is its meaning. better: `lower` or `higher`. A run
    measures it where `compare.metrics=[module.function]` names it."""
    if better not in ("lower", "higher"):
        raise ConfigProblem(f"metric {label!r}: better is {better!r}; give lower or higher.")

    def made(function: Callable[..., float]) -> Metric:
        meaning = (function.__doc__ or "").strip().partition("\n")[0]
        told = Fact(label, unit, format, meaning, "noise", "metric", better)  # type: ignore[arg-type]
        return Metric(function, told)

    return made


def named(names: Iterable[str]) -> list[Metric]:
    """The metrics at `module.function`. Raises ConfigProblem for a name that leads to none."""
    found = []
    for name in names:
        if name not in _KNOWN:
            module, _, function = str(name).rpartition(".")
            try:
                made = getattr(importlib.import_module(module), function)
            except (ImportError, AttributeError, ValueError) as problem:
                raise ConfigProblem(
                    f"compare.metrics: {name} cannot be imported ({problem}). Give module.function, importable from "
                    "PYTHONPATH or plugins.path=DIR."
                ) from problem
            if not isinstance(made, Metric):
                raise ConfigProblem(
                    f"compare.metrics: {name} is no metric. Decorate it with @harness.metric(label=...)."
                )
            _KNOWN[name] = made
        found.append(_KNOWN[name])
    return found


_measured: list[Metric] = []


@contextmanager
def measuring(names: Iterable[str]) -> Iterator[list[Metric]]:
    """While this lasts, every comparison of logits measures the metrics `names` too."""
    global _measured
    before, _measured = _measured, named(names)
    try:
        yield _measured
    finally:
        _measured = before


def measured() -> list[Metric]:
    """The metrics that are measured beside those of the house."""
    return list(_measured)


def registered() -> dict[str, Fact]:
    """Every metric that was named in this process, by its field."""
    return {one.name: one.fact for one in _KNOWN.values()}
