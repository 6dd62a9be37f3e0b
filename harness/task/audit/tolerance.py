"""What follows from a run beside its second run: repeated to the bit, or where the bits may differ, as near as another
environment leaves it.

Names, flags, counts and lengths are the same wherever it runs. A measured error is not, but no order of
the same sums moves it far, and bytes that were stored differ by what a header says of versions. Sentences
are no facts: of two that have the same words the figures are compared.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.compare.soundness import FACTOR as SPREAD
from harness.task.audit.derivation import claims, words
from harness.task.audit.finding import Finding

HEADERS = 0.05  # of the bytes stored
NOTHING = 2.0**-48  # nats; of a sum of probabilities in float64
TIMED = re.compile(r"x[\d.]+ |[\d.]+ m?s\b|budget_s=\d+")  # what a sentence says of time
DIGEST = re.compile("[0-9a-f]{64}")
WHY = f"further from the second run than a factor of {SPREAD:.0f}, within which rounding leaves an error"
SAID = "the sentence says this, and no figure of the record gives it"
COUNTED = "the same wherever it runs, and not what the second run says"
STORED = f"the second run stores another amount, by more than {HEADERS:.0%}"
# counts that jump where a logit is near 0, what follows from the other figures, what a machine can serve
FREE = re.compile(
    r"(.*\.)?max_ulp|noise_floor\.(bitwise_equal|first_divergence)|cache\.passed_over.*"
)


@dataclass(frozen=True)
class Apart:
    """keys: dotted, of what is judged by itself; endings: of keys whose figures are measured anew."""

    keys: tuple[str, ...]
    endings: tuple[str, ...]


def leaves(
    recorded: Mapping[str, Any], again: Mapping[str, Any], apart: Apart, same: bool, why: str
) -> Iterator[Finding]:
    """Every leaf that is not what the second run says, nor what rounding makes of it. same: nothing decides the bits
    otherwise, so every leaf is repeated; why: what to say where one is not."""
    scale = _scale(again)
    for key, was, now in _pairs(recorded, again, apart, same):
        if isinstance(was, str) and isinstance(now, str) and " " in was and " " in now:
            if words(was) != words(now):  # which claim nothing but their figures
                said = claims(_timeless(was), now, recorded)
                yield from (Finding(key, claim, own, SAID) for claim, own in said)
            elif same and _timeless(was) != _timeless(now):
                yield Finding(key, was, now, why)
        elif same:
            if was != now:
                yield Finding(key, was, now, why)
        elif isinstance(was, str) and isinstance(now, str):
            if was != now and not (DIGEST.fullmatch(was) and DIGEST.fullmatch(now)):
                yield Finding(key, was, now, COUNTED)
        elif type(was) is type(now) is int and key.endswith("bytes"):
            if abs(was - now) > HEADERS * now:
                yield Finding(key, was, now, STORED)
        elif not (_number(was) and _number(now) and float in (type(was), type(now))):
            if was != now:
                yield Finding(key, was, now, COUNTED)
        elif not _near(key, was, now, scale, again):
            yield Finding(key, was, now, WHY)
    if same:
        return
    yield from _curves(recorded.get("curves") or {}, again.get("curves") or {}, scale)
    was, now = (r.get("mutation") or {} for r in (recorded, again))
    kept = [m.get("digest_before") == m.get("digest_after") for m in (was, now)]
    if kept[0] != kept[1]:
        yield Finding(
            "mutation.digest_after", was.get("digest_after"), now.get("digest_after"), COUNTED
        )


def _pairs(
    was: Any, now: Any, apart: Apart, same: bool, key: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """`(key, recorded, found)` of the leaves that a record claims, lists element by element. What the second run alone
    has came later."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for inner in was:
            name = f"{key}.{inner}" if key else str(inner)
            free = not same and FREE.fullmatch(name)
            if name in apart.keys or name.endswith(apart.endings) or free:
                continue
            if inner in now:
                yield from _pairs(was[inner], now[inner], apart, same, name)
            elif key and was[inner] is not None:
                yield name, was[inner], None
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, two) in enumerate(zip(was, now)):
            yield from _pairs(one, two, apart, same, f"{key}[{index}]")
    else:
        yield key, was, now


def _timeless(text: str) -> str:
    """What a sentence says but of time."""
    return TIMED.sub("#", text)


def _curves(recorded: Any, again: Any, scale: float) -> Iterator[Finding]:
    """Per step, as many of them and as long; the noise about as high. That the highest step is the
    figure that the result speaks of, `derivation.figures` tells."""
    shapes = [[{k: len(v) for k, v in c.items()} for c in r.values()] for r in (recorded, again)]
    if shapes[0] != shapes[1]:
        yield Finding("curves", str(shapes[0]), str(shapes[1]), COUNTED)
        return
    for (name, was), now in zip(recorded.items(), again.values()):
        for quantity, steps in was.items():
            one, two = _mean(steps), _mean(now[quantity])
            if name != "restored" and not _close(one, two, scale, quantity == "kl"):
                yield Finding(f"curves.{name}.{quantity}", one, two, f"on average {WHY}")


def _near(key: str, was: float, now: float, scale: float, again: Any) -> bool:
    """Whether two measured errors may be of the same computation."""
    block, _, last = key.partition(".")
    if block == "noise_floor" and last == "nll_delta":  # at most what a logit is off by, either way
        return abs(was) <= SPREAD * max(again["noise_floor"].get("max_abs_diff") or 0.0, scale)
    if block == "noise_floor" and last in ("top1_agreement", "top5_overlap"):
        steps = [len(c["kl"]) for c in (again.get("curves") or {}).values()]
        return 0 <= 1 - was <= SPREAD * (1 - now) + 1 / max(steps, default=1)
    return _close(was, now, scale, last.startswith("kl_"))


def _close(was: float, now: float, scale: float, divergence: bool) -> bool:
    """Within SPREAD of each other (a divergence is of the second order: within its square); or one of
    them nothing, since two orders of a sum may meet, and the other no more than rounding."""
    low, high = sorted((abs(was), abs(now)))
    if divergence:
        return high <= max(SPREAD**2 * low, NOTHING) or (low <= NOTHING and high <= scale**2)
    alike = high <= SPREAD * low and (was < 0) == (now < 0)
    return alike or (low == 0 and high <= scale) or was == now


def near(was: Any, now: Any) -> bool:
    """Whether two measured noises may be of the same computation."""
    return _number(was) and _number(now) and _close(was, now, 0.0, False)


def _scale(again: Mapping[str, Any]) -> float:
    """What rounding makes of a logit in the second run: the error of its uncached run."""
    scale = (again.get("soundness") or {}).get("scale") or {}
    plain = (again.get("oracle") or {}).get("plain")
    return float(plain or scale.get("error") or 0.0)


def _mean(curve: Sequence[Any]) -> float:
    numbers = [float(v) for v in curve if v is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
