"""What follows from a run beside its second run, where the bits may differ: in another environment, or by
another version of the code.

Names, flags, counts and lengths are the same wherever it runs. A measured error is not, but no order of
the same sums moves it far, and bytes that were stored differ by what a header says of versions. Words
another version of the code may choose otherwise: those are told apart (`uncompared`), not judged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.compare.conclusion import speed
from harness.compare.soundness import FACTOR as SPREAD
from harness.task.audit import refusal
from harness.task.audit.derivation import concluded, words
from harness.task.audit.finding import Finding

HEADERS = 0.05  # of the bytes stored
NOTHING = 2.0**-48  # nats; of a sum of probabilities in float64
TIMES = 4.0  # two speeds that lie further apart are worth a word
DIGEST = re.compile("[0-9a-f]{64}")
WHY = f"further from the second run than a factor of {SPREAD:.0f}, within which rounding leaves an error"
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
    recorded: Mapping[str, Any], again: Mapping[str, Any], apart: Apart, version: bool
) -> Iterator[Finding]:
    """Every leaf that is not what the second run says, nor what rounding makes of it.

    version: another version of the code made the record.
    """
    scale = _scale(again)
    for key, was, now in _pairs(recorded, again, apart, version):
        if isinstance(was, str) and isinstance(now, str):
            yield from _string(key, was, now, recorded, again, version)
        elif type(was) is type(now) is int and key.endswith("bytes"):
            if abs(was - now) > HEADERS * now:
                yield Finding(key, was, now, STORED)
        elif not (_number(was) and _number(now) and float in (type(was), type(now))):
            if was != now:
                yield Finding(key, was, now, COUNTED)
        elif not (version and key.endswith(".bound")) and not _near(key, was, now, scale, again):
            yield Finding(key, was, now, WHY)
    yield from _curves(recorded.get("curves") or {}, again.get("curves") or {}, scale)
    was, now = (r.get("mutation") or {} for r in (recorded, again))
    kept = [m.get("digest_before") == m.get("digest_after") for m in (was, now)]
    if kept[0] != kept[1]:
        yield Finding(
            "mutation.digest_after", was.get("digest_after"), now.get("digest_after"), COUNTED
        )


def uncompared(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, str]:
    """What of a record by another version of the code is not compared: what -> its words and ours."""
    said, derived = recorded.get("conclusion"), concluded(recorded)
    told = {}
    if words(said) != words(derived):
        told["the words of its sentence"] = (
            f'"{said}"; of its figures this version says "{derived}"'
        )
    was, now = recorded.get("reason"), again.get("reason")
    bare = [refusal.told(str(r.get("reason")), r) for r in (recorded, again)]
    if words(bare[0]) != words(bare[1]):  # a run that failed speaks of its own folder
        told["the words of its reason"] = f'"{was}"; the second run says "{now}"'
    rows = list(zip(*((r.get("soundness") or {}).get("paths") or [] for r in (recorded, again))))
    if any(one.get("path") != two.get("path") for one, two in rows):
        told["the names of its plain paths"] = "; ".join(str(one.get("path")) for one, _ in rows)
    if any(not _close(one["bound"], two["bound"], 0.0, False) for one, two in rows):
        told["the bounds of its plain paths"] = "what rounding explains, as that version derived it"
    missing = {key for key in again if key not in recorded}
    for key, block in again.items():
        beside = recorded.get(key)
        if isinstance(block, Mapping) and isinstance(beside, Mapping) and key != "environment":
            missing |= {f"{key}.{inner}" for inner in block.keys() - beside.keys()}
    if missing := missing - {"mlflow", "exit_code", "next", "code"}:
        names = sorted(
            {key for key in missing if key.partition(".")[0] not in missing}
            | (missing & again.keys())
        )
        told[f"what it does not say ({', '.join(names)})"] = "that version did not record it"
    speeds = [speed(r, 0.0) for r in (recorded, again)]
    if all(speeds):
        slow, fast = sorted(_ratio(s) for s in speeds)
        if fast > TIMES * slow:
            told["its times"] = f"{speeds[0]}, the second run {speeds[1]}"
    return told


def told(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, str]:
    """`uncompared`, of a record that may have any form: one that has another is a difference by itself."""
    try:
        return uncompared(recorded, again)
    except (AttributeError, TypeError, KeyError, ValueError):
        return {}


def _pairs(
    was: Any, now: Any, apart: Apart, version: bool, key: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """`(key, recorded, found)` of the leaves that both sides may have, lists element by element."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for inner in dict.fromkeys([*was, *now]):
            name = f"{key}.{inner}" if key else str(inner)
            if name in apart.keys or name.endswith(apart.endings) or FREE.fullmatch(name):
                continue
            if inner in was and inner in now:
                yield from _pairs(was[inner], now[inner], apart, version, name)
            elif inner in was and key and was[inner] is not None:
                yield name, was[inner], None
            elif inner in now and not version and now[inner] is not None:
                yield name, None, now[inner]
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, two) in enumerate(zip(was, now)):
            yield from _pairs(one, two, apart, version, f"{key}[{index}]")
    else:
        yield key, was, now


def _string(
    key: str, was: str, now: str, recorded: Any, again: Any, version: bool
) -> Iterator[Finding]:
    """Choices are the same; sentences too, but for their figures, where the same code says them."""
    if DIGEST.fullmatch(was) and DIGEST.fullmatch(now):
        return  # of bits
    spoken = " " in was and " " in now
    free = version or recorded.get("verdict") != again.get("verdict")
    if was != now and not (spoken and (free or words(was) == words(now))):
        yield Finding(key, was, now, COUNTED)


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


def _ratio(said: str) -> float:
    """`2.0 times slower ...` as how many times faster; 1 of `about as fast ...`."""
    if "times" not in said:
        return 1.0
    much, _, which, *_ = said.split()
    return float(much) if which == "faster" else 1 / float(much)
