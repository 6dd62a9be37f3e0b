"""What a run that was refused says of it, beside the second run: the reason, where it stood, every difference,
fault and figure of the diagnosis. Bitwise where the environment is the same; otherwise words and counts alike, and
a measured number within the factor in which rounding leaves an error.

A place is no claim: the second run lies elsewhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.compare.soundness import FACTOR as SPREAD
from harness.task.audit.derivation import words
from harness.task.audit.finding import Finding

STRUCTURE = ("differences", "faults", "diagnosis", "known", "reason", "stage", "remedy", "exit_code", "conclusion")  # fmt: skip
LIBRARIES = ("model_config", "tokenizer")  # elements whose documents gain fields with a version
ROUNDED = (
    f"words and whole numbers equal, measured ones at most {SPREAD:.0f} times larger or smaller",
    "another order of the same sums moves an error of rounding within that factor",
)
PATH = re.compile(
    r"""[^\s,;'"`(=]*[A-Za-z.~][^\s,;'"`(=/]*/[^\s,;'"`)]*[^\s,;:.'"`)]|(?<!\w)/[^\s,;'"`)]*[^\s,;:.'"`)]"""
)
LONG = re.compile(r"[0-9a-f]{12,}")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
MEASURED = re.compile(r"(?:within|off by|up to) $")


def differences(
    recorded: Mapping[str, Any], again: Mapping[str, Any], changed: list[dict[str, Any]], salted: bool, why: str
) -> Iterator[Finding]:  # fmt: skip
    """Everything in which two refusals are not alike. changed: from `difference.since`. salted: the snapshots are
    encrypted, so their digests are others each time."""
    exact = not any(c["decisive"] for c in changed)
    newer = any(c["what"].startswith("versions.") for c in changed)
    if again.get("environment") and not recorded.get("environment"):
        why = "every refusal records where it was, so it was taken out"
        yield Finding("environment", None, "a block", why)
    for key in STRUCTURE:
        was, now = (told(r.get(key), r, salted) for r in (recorded, again))
        if key == "known":
            was, now = (_known(k, newer) for k in (was, now))
        pictured = False
        for what, one, two in _leaves(key, was, now):
            picture = what.startswith("diagnosis.picture")
            if (same(one, two) if exact else alike(one, two)) or (picture and pictured):
                continue
            pictured |= picture  # the first of many
            yield Finding(what, one, two, why)


def told(value: Any, result: Mapping[str, Any], salted: bool = False) -> Any:
    """`value` with every place in its texts told as one, since a second run lies elsewhere."""
    if isinstance(value, str):
        value = value.replace(str(result.get("folder")), "/PLACE")
        text = PATH.sub("PLACE", value)
        return LONG.sub("DIGEST", text) if salted else text
    if isinstance(value, Mapping):
        return {key: told(inner, result, salted) for key, inner in value.items()}
    if isinstance(value, list):
        return [told(inner, result, salted) for inner in value]
    return value


def same(one: Any, two: Any) -> bool:
    """Whether they are equal; of two sentences whether they say the same, or say it in other words."""
    return bool(one == two) or (_spoken(one, two) and words(one) != words(two))


def alike(one: Any, two: Any) -> bool:
    """Whether rounding explains it; of two sentences in other words only that both say something."""
    if isinstance(one, str) and isinstance(two, str):
        if NUMBER.sub("#", one) != NUMBER.sub("#", two):
            return _spoken(one, two)
        return all(
            a == b or ((measured or not (a.isdigit() and b.isdigit())) and near(float(a), float(b)))
            for (a, measured), (b, _) in zip(_numbers(one), _numbers(two), strict=True)
        )
    if type(one) is type(two) is float:
        return near(one, two)
    return bool(one == two)


def _spoken(one: Any, two: Any) -> bool:
    return all(isinstance(text, str) and " " in text for text in (one, two))


def near(one: float, two: float) -> bool:
    """Within `SPREAD` of each other, or both no more than rounding: what is counted in noise floors."""
    low, high = sorted((abs(one), abs(two)))
    return high <= SPREAD * low and (one < 0) == (two < 0)


def _numbers(text: str) -> list[tuple[str, bool]]:
    """Every number in `text`, and whether it says how large an error was."""
    return [(m[0], bool(MEASURED.search(text[: m.start()]))) for m in NUMBER.finditer(text)]


def _known(block: Any, newer: bool) -> Any:
    """What had been read before, without what another library's version writes otherwise."""
    if not isinstance(block, Mapping):
        return block
    rows = [e for e in block.get("elements") or [] if not (newer and e["name"] in LIBRARIES)]
    blocks = {key: block.get(key) for key in ("size", "model")}
    return {**blocks, "elements": {e["name"]: e["digest"] for e in rows}}


def _leaves(key: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """`what, recorded, found` of every leaf that the record claims."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for inner in was:
            yield from _leaves(f"{key}.{inner}", was[inner], now.get(inner))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, two) in enumerate(zip(was, now), 1):
            yield from _leaves(f"{key}.{index}", one, two)
    elif isinstance(was, list) and isinstance(now, list):
        yield f"{key}: how many", len(was), len(now)
    else:
        yield key, was, now
