"""Is the yardstick sound? Before a restored run is measured, the plain paths that measure it are.

The scale of rounding comes from runs without a cache, by the library's own forward alone. Whether a
cached path computes the same *function* is a question of logic, asked where rounding cannot hide the
answer: the very chunks of the live run in float64, against one uncached pass in float64.

The bound for float64 is derived, not tuned. The same model, the same tokens: what rounding to unit u
makes of a logit grows with u, however the model amplifies it. The uncached run's own error in the
working dtype, carried over by the ratio of the units, is therefore what float64 rounds to here; two
orders of it may lie FACTOR times that apart. At least, of a model that amplifies nothing: at most
ROUNDINGS elementwise roundings stand one behind another in a decoder layer (two norms, query and key
norm, RoPE, softmax, gate, two residuals: each a handful), `2**-53 * ROUNDINGS * (layers + 1)` of the
largest logit. Healthy families measure 0.6 to 3 times what is carried over; a clamp that one form of a
recurrence has and the other has not, 1e5 times it and more; a lost state, mask or position 1e12.

Where an operation of the model gave less than float64 for float64 (`Oracle.narrowed`), or the
uncached run's error says nothing of it (`carried`), the unit is float32's: 1e-5 of the largest logit for a small
model, 2e-4 for one of 80 layers.

In the working dtype the same logic holds, and rounding is judged: a cached path that is off by more
than FACTOR times the uncached run's own error has lost four bits on its worst logit, which no other
order of the same sums does (measured: at most 1.5 times in healthy families, 990 in broken ones).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import torch

from harness.results.reason import Code, Reason, reason

ROUNDINGS = 32
FACTOR = 16.0
UNIT32, UNIT64 = 2.0**-24, 2.0**-53  # half a unit in the last place, relative


@dataclass(frozen=True)
class PlainPath:
    """One plain path beside the uncached run: largest logit difference, and what rounding allows. narrow: in float64,
    where only float32's rounding is known."""

    path: str
    error: float
    bound: float
    narrow: bool = False

    @property
    def sound(self) -> bool:
        """NaN is not sound, nor is anything that only infinity bounds."""
        return self.error <= self.bound < inf

    def row(self) -> dict[str, Any]:
        """JSON-able. narrow: the bound is what float32 rounds to."""
        told: dict[str, Any] = {"path": self.path, "error": self.error, "bound": self.bound}
        return told | {"narrow": True} if self.narrow else told


@dataclass(frozen=True)
class Soundness:
    """scale: error of the uncached run in the working dtype, and what it was measured against."""

    scale: Mapping[str, Any]
    paths: Sequence[PlainPath]

    @property
    def sound(self) -> bool:
        return all(path.sound for path in self.paths)

    @property
    def worst(self) -> PlainPath:
        """The path furthest beyond its bound; before all others one that nothing finite bounds."""

        def beyond(path: PlainPath) -> float:
            known = isfinite(path.error) and path.bound < inf
            return path.error / path.bound if known else inf

        return max(self.paths, key=beyond)

    @property
    def reason(self) -> Reason:
        """Names path, error and bound."""
        bad = self.worst
        if not (isfinite(bad.error) and isfinite(bad.bound)):
            return reason(Code.UNSOUND_NUMBERS, path=bad.path)
        return reason(Code.UNSOUND_PATH, path=bad.path, error=bad.error, bound=bad.bound)

    def document(self) -> dict[str, Any]:
        """The `soundness` block of `result.json`."""
        rows = [path.row() for path in self.paths]
        return {"sound": self.sound, "scale": dict(self.scale), "paths": rows}


def carried(error: float, largest: float, dtype: torch.dtype) -> float | None:
    """What float64 rounds to where the working `dtype` rounds to `error`, for logits up to `largest`.
    None where that does not follow: the dtype is float64 itself, or its error is no longer small, so
    that it would be larger still if there were room."""
    if dtype == torch.float64 or error * FACTOR > largest:
        return None
    return error * UNIT64 / (torch.finfo(dtype).eps / 2)


def float64_bound(layers: int, largest: float, rounding: float | None = None) -> float:
    """What orders of the same float64 computation may differ by, for logits up to `largest`.
    rounding: as `carried` gives it; None where that is not known, or float32 may have rounded."""
    steps = ROUNDINGS * (layers + 1) * largest
    return UNIT32 * steps if rounding is None else max(FACTOR * rounding, UNIT64 * steps)


def orders(layers: int, largest: float, error: float) -> float:
    """What another order of the sums may make of logits up to `largest` in float64, where the library's own cached path
    is off by `error`: the bound for the path under test."""
    return max(FACTOR * error, UNIT64 * ROUNDINGS * (layers + 1) * largest)


def single_rounding(error: float, largest: float, dtype: torch.dtype) -> float | None:
    """What float32 rounds to where the working `dtype` rounds to `error`; None where that does not follow, as of `carried`."""
    carried_over = carried(error, largest, dtype)
    return None if carried_over is None else carried_over * UNIT32 / UNIT64


def exact_path(
    name: str,
    cached: torch.Tensor,
    uncached: torch.Tensor,
    layers: int,
    rounding: float | None = None,
) -> PlainPath:
    """A cached path in float64 beside the uncached one, both `[batch, steps, vocab]`. rounding: see
    `float64_bound`."""
    bound = float64_bound(layers, float(uncached.abs().max()), rounding)
    return PlainPath(name, gap(cached, uncached), bound, rounding is None)


def rounded_path(
    name: str, cached: torch.Tensor, scale: float, exact: torch.Tensor, dtype: torch.dtype
) -> PlainPath:
    """A cached path in the working `dtype` beside `exact`, both `[batch, steps, vocab]`.

    scale: the uncached run's own error, largest of its compositions; never below one rounding of
    the largest logit.
    """
    rounding = float(exact.abs().max()) * torch.finfo(dtype).eps
    return PlainPath(name, gap(cached, exact), FACTOR * max(scale, rounding))


def gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors, in float64."""
    return float((one.double() - other.double()).abs().max())
