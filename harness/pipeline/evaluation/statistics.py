"""How sure an average is: Wilson's interval of a share, bootstrap intervals of a mean, and of the
difference from the full cache, prompt by prompt."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Any

import torch

Z = 1.96  # 95%
TAIL = 0.025
DRAWN = 2000


def share(hits: Sequence[float]) -> dict[str, Any]:
    """Share of hits (0 or 1) with Wilson's 95% interval, which is honest at 0 and at 1."""
    n, p = len(hits), sum(hits) / len(hits)
    middle, spread = p + Z * Z / (2 * n), Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    low, high = (middle - spread) / scale, (middle + spread) / scale
    return {"value": p, "low": min(max(low, 0.0), p), "high": max(min(high, 1.0), p), "n": n}


def mean(values: Sequence[float]) -> dict[str, Any]:
    """Mean with a 95% interval: percentiles of bootstrap samples over the prompts. None of one prompt,
    which says nothing of another."""
    sample = torch.tensor(values, dtype=torch.float64)
    low, high = _percentiles(sample)
    return {"value": float(sample.mean()), "low": low, "high": high, "n": len(values)}


def paired(values: Sequence[float], full: Sequence[float]) -> dict[str, Any]:
    """Mean difference from the full cache on the same prompts, with its 95% interval like `mean`'s."""
    gap = mean([value - whole for value, whole in zip(values, full, strict=True)])
    return {"delta": gap["value"], "delta_low": gap["low"], "delta_high": gap["high"]}


def paired_shares(hits: Sequence[float], full: Sequence[float]) -> dict[str, float]:
    """Difference of two shares of the same prompts with its 95% interval, made of Wilson's two, which
    is honest where few prompts are all right: none lost of 4 does not say that none would be of 400.
    Source: Newcombe 1998, method 10."""
    one, two, n = share(hits), share(full), len(hits)
    both = sum(a * b for a, b in zip(hits, full, strict=True))
    (p, low, high), (q, under, over) = (
        [s[k] for k in ("value", "low", "high")] for s in (one, two)
    )
    spread = sqrt(p * (1 - p) * q * (1 - q)) * n * n
    excess = n * both - p * q * n * n  # ad - bc
    phi = (max(excess - n / 2, 0.0) if excess > 0 else excess) / spread if spread else 0.0

    def reach(a: float, b: float) -> float:
        return sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))

    gap = p - q
    below, above = reach(p - low, over - q), reach(high - p, q - under)
    return {"delta": gap, "delta_low": max(gap - below, -1.0), "delta_high": min(gap + above, 1.0)}


def _percentiles(sample: torch.Tensor) -> tuple[float, float] | tuple[None, None]:
    """Of few values the percentiles lie further out, as Student's t does beside the normal
    distribution. Source: Hesterberg 2015, "What Teachers Should Know About the Bootstrap", 4.4."""
    n = len(sample)
    if n < 2:
        return None, None
    from scipy.special import stdtrit

    tail = NormalDist().cdf(sqrt(n / (n - 1)) * float(stdtrit(n - 1, TAIL)))
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randint(n, (DRAWN, n), generator=draw)
    low, high = sample[drawn].mean(1).quantile(torch.tensor([tail, 1 - tail]).double()).tolist()
    value = float(sample.mean())
    return min(low, value), max(high, value)
