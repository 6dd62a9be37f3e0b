"""Figures of two sets of logits: those of the house, and whatever somebody registers with `@harness.metric`.

A metric is one function of `restored`, `reference` `[batch, steps, vocab]` and `next_ids` `[batch, steps]`. It is measured of
the restored run and of every plain path, so that it has a noise floor, and is in console, page, CSV, MLflow and audit.
"""

from collections.abc import Callable, Iterable
from typing import Any

from harness import variants
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
    for name in map(str, names):
        if name not in _KNOWN:
            made = variants.imported("compare.metrics", name) if "." in name else None
            if not isinstance(made, Metric):
                raise ConfigProblem(
                    f"compare.metrics: {name} is no metric. Give module.function of one that is decorated with "
                    "@harness.metric(label=...)."
                )
            _KNOWN[name] = made
        found.append(_KNOWN[name])
    return found


_measured: list[Metric] = []


def measure(names: Iterable[str]) -> None:
    """From here on every comparison of logits measures the metrics `names`, and no others, beside those of the house."""
    _measured[:] = named(names)


def measured() -> list[Metric]:
    """The metrics that are measured beside those of the house."""
    return list(_measured)


def registered() -> dict[str, Fact]:
    """Every metric that was named in this process, by its field."""
    return {one.name: one.fact for one in _KNOWN.values()}
