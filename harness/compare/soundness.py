"""Is the yardstick sound? Before a restored run is measured, the plain paths that measure it are.

The scale of rounding comes from runs without a cache, by the library's own forward alone. Whether a
cached path computes the same *function* is a question of logic, asked where rounding cannot hide the
answer: the very chunks of the live run in float64, against one uncached pass in float64.

The bound for float64 is derived, not tuned. Every upcast to float32 inside a model is kept in float64
(`model/oracle`), but a kernel or a constant may still round to float32. At most ROUNDINGS elementwise
roundings stand one behind another in a decoder layer (two norms, query and key norm, RoPE, softmax,
gate, two residuals: each a handful), each off by at most the unit roundoff 2**-24. So two orders of
the same computation may differ by `2**-24 * ROUNDINGS * (layers + 1)` of the largest logit, and no
more: 1e-5 for a small model, 2e-4 for one of 80 layers. Healthy families measure 1e-15 to 3e-7, paths
that lose a state, a mask or a position 1e-3 and more.

In the working dtype the same logic holds, and rounding is judged: a cached path that is off by more
than FACTOR times the uncached run's own error has lost four bits on its worst logit, which no other
order of the same sums does (measured: at most 1.5 times in healthy families, 990 in broken ones).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

ROUNDINGS = 32
FACTOR = 16.0
UNIT = 2.0**-24  # half a unit in the last place of float32, relative


@dataclass(frozen=True)
class PlainPath:
    """One plain path beside the uncached run: largest logit difference, and what rounding allows."""

    path: str
    error: float
    bound: float

    @property
    def sound(self) -> bool:
        """NaN is not sound."""
        return self.error <= self.bound

    def row(self) -> dict[str, Any]:
        """JSON-able."""
        return {"path": self.path, "error": self.error, "bound": self.bound}


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
        """The path furthest beyond its bound."""
        return max(
            self.paths, key=lambda p: float("inf") if p.error != p.error else p.error / p.bound
        )

    @property
    def reason(self) -> str:
        """One sentence that names path, error and bound."""
        bad = self.worst
        return (
            f"{bad.path} is off by {bad.error:.3g} from the same model without a cache, rounding "
            f"explains {bad.bound:.3g}: what would be compared with is itself wrong"
        )

    def document(self) -> dict[str, Any]:
        """The `soundness` block of `result.json`."""
        rows = [path.row() for path in self.paths]
        return {"sound": self.sound, "scale": dict(self.scale), "paths": rows}


def float64_bound(layers: int, largest: float) -> float:
    """What orders of the same float64 computation may differ by, for logits up to `largest`."""
    return UNIT * ROUNDINGS * (layers + 1) * largest


def exact_path(name: str, cached: torch.Tensor, uncached: torch.Tensor, layers: int) -> PlainPath:
    """A cached path in float64 beside the uncached one, both `[batch, steps, vocab]`."""
    largest = float(uncached.abs().max())
    return PlainPath(name, _gap(cached, uncached), float64_bound(layers, largest))


def rounded_path(
    name: str, cached: torch.Tensor, scale: float, exact: torch.Tensor, dtype: torch.dtype
) -> PlainPath:
    """A cached path in the working `dtype` beside `exact`, both `[batch, steps, vocab]`.

    scale: the uncached run's own error, largest of its compositions; never below one rounding of
    the largest logit.
    """
    rounding = float(exact.abs().max()) * torch.finfo(dtype).eps
    return PlainPath(name, _gap(cached, exact), FACTOR * max(scale, rounding))


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).abs().max())
