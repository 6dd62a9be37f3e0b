"""How far two answers of an engine are apart, as far as their most probable tokens show it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.engine import Answer, Engine


def compare(answer: Answer, expected: Answer) -> dict[str, Any]:
    """Metrics of `answer` against `expected` over the steps that both have; the last common step may
    choose another token, no earlier one does unless it was forced on.

    max_abs_diff is over log-probabilities in nats; a token that only one side lists counts with what
    it must differ by at least. KL lumps everything outside the common tokens together, a lower bound.
    seen: the smallest probability mass of `expected` that both sides list. lead: by how much
    `expected` preferred its own token where `answer` chose another, at most.
    """
    gaps, kls, leads, masses, same = [], [], [0.0], [], []
    for a, b, chosen, other in zip(answer.tops, expected.tops, answer.tokens, expected.tokens):
        common = a.keys() & b.keys()
        low_a, low_b = (min(top.values(), default=-math.inf) for top in (a, b))
        apart = [0.0 if a[t] == b[t] else abs(a[t] - b[t]) for t in common]
        apart += [max(a[t] - low_b, 0.0) for t in a.keys() - common]
        apart += [max(b[t] - low_a, 0.0) for t in b.keys() - common]
        gaps.append(_largest(apart))
        kl, mass = _kl(a, b, common)
        kls.append(kl)
        masses.append(mass)
        same.append(chosen == other)
        if chosen != other:
            leads.append(b[other] - b.get(chosen, low_b) if other in b else math.inf)
    return {
        "steps": len(gaps),
        "missing": max(len(expected.tokens) - len(answer.tokens), 0),
        "bitwise_equal": all(s and a == b for s, a, b in zip(same, answer.tops, expected.tops)),
        "max_abs_diff": _largest(gaps),
        "kl_max": max(kls, default=math.inf),
        "top1_agreement": sum(same) / max(len(same), 1),
        "first_divergence": same.index(False) if False in same else None,
        "lead": max(leads),
        "seen": min(masses, default=0.0),
        "gaps": gaps,
    }


def errors(answer: Answer, exact: np.ndarray) -> list[float]:
    """Per step the largest difference from float64 `exact` `[steps, vocab]`, in nats, over what the
    engine lists. Tokens go by their ids."""
    return [
        _largest(
            [
                abs(value - float(row[token]))
                for token, value in top.items()
                if int(token) < len(row)
            ]
        )
        for top, row in zip(answer.tops, exact)
    ]


def rounding(answer: Answer, roundoff: float = Engine.roundoff) -> float:
    """One rounding of the largest log-probability: no floor can lie below it."""
    values = (v for top in answer.tops for v in top.values())
    return roundoff * max((abs(v) for v in values if math.isfinite(v)), default=1.0)


def worst(rows: Sequence[Mapping[str, Any]], least: float) -> dict[str, float]:
    """The noise floor of several comparisons: their largest differences, at least `least`."""
    return {
        "max_abs_diff": max([least, *(r["max_abs_diff"] for r in rows)]),
        "kl_max": max([least**2, *(r["kl_max"] for r in rows)]),
        "top1_agreement": min([1.0, *(r["top1_agreement"] for r in rows)]),
    }


def _largest(gaps: Sequence[float]) -> float:
    """Infinite where there is none, and where one is not a number: nothing bounds that."""
    return math.inf if any(math.isnan(gap) for gap in gaps) else max(gaps, default=math.inf)


def _kl(a: Mapping, b: Mapping, common: set) -> tuple[float, float]:
    """KL(b || a) in nats with all but the common tokens as one, and b's mass on the common ones."""
    mass_a = min(math.fsum(math.exp(a[t]) for t in common), 1.0)
    mass_b = min(math.fsum(math.exp(b[t]) for t in common), 1.0)
    kl = math.fsum(math.exp(b[t]) * (b[t] - a[t]) for t in common if b[t] != -math.inf)
    if 1 - mass_b > 1e-6 and 1 - mass_a > 1e-6:
        kl += (1 - mass_b) * math.log((1 - mass_b) / (1 - mass_a))
    return (math.inf if math.isnan(kl) else max(kl, 0.0)), mass_b
