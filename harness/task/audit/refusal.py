"""What a run that was refused says of it, beside the second run: the reason, where it stood, every difference,
fault and figure of the diagnosis. Bitwise where the environment is the same; otherwise words and counts alike, and
a measured number within the factor in which rounding leaves an error.

A place is no claim: the second run lies elsewhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.compare.soundness import FACTOR as SPREAD
from harness.report.audit.figures import came
from harness.task.audit.finding import Finding

STRUCTURE = ("differences", "faults", "diagnosis", "known")
WORDS = (
    "reason",
    "stage",
    "remedy",
    "exit_code",
    "conclusion",
)  # which another version may choose otherwise
LIBRARIES = ("model_config", "tokenizer")  # elements whose documents gain fields with a version
ABSENT = "a refusal of this version records where it was, so it was taken out"
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


def unplaced(recorded: Mapping[str, Any]) -> bool:
    """Whether a refusal does not say where it was: earlier versions recorded no environment of it."""
    return bool(came(recorded)) and not recorded.get("environment")


def differences(
    recorded: Mapping[str, Any], again: Mapping[str, Any], changed: list[dict[str, Any]], salted: bool, why: str
) -> Iterator[Finding]:  # fmt: skip
    """Everything in which two refusals are not alike. changed: from `difference.since`. salted: the snapshots are
    encrypted, so their digests are others each time."""
    exact = not any(c["decisive"] for c in changed)
    version = any(c["what"] == "code" for c in changed)
    newer = any(c["what"].startswith(("versions.", "environment")) for c in changed)
    if unplaced(recorded) and again.get("environment") and not version:
        yield Finding("environment", None, "a block", ABSENT)
    for key in (*STRUCTURE, *(() if version else WORDS)):
        was, now = (told(r.get(key), r, salted) for r in (recorded, again))
        if key == "known":
            was, now = (_known(k, newer) for k in (was, now))
        pictured = False
        for what, one, two in _leaves(key, was, now, version):
            picture = what.startswith("diagnosis.picture")
            if (one == two if exact else alike(one, two, version)) or (picture and pictured):
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


def alike(one: Any, two: Any, version: bool = False) -> bool:
    """Whether rounding explains it; of two sentences by different versions only that both say something."""
    if isinstance(one, str) and isinstance(two, str):
        if version and " " in one and " " in two:
            return True
        return NUMBER.sub("#", one) == NUMBER.sub("#", two) and all(
            a == b or ((measured or not (a.isdigit() and b.isdigit())) and near(float(a), float(b)))
            for (a, measured), (b, _) in zip(_numbers(one), _numbers(two), strict=True)
        )
    if type(one) is type(two) is float:
        return near(one, two)
    return bool(one == two)


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


def _leaves(key: str, was: Any, now: Any, version: bool) -> Iterator[tuple[str, Any, Any]]:
    """`what, recorded, found` of every leaf; what one side lacks is none. A key that only one version writes
    claims nothing."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for inner in dict.fromkeys([*was, *now]):
            if not version or (inner in was and inner in now):
                yield from _leaves(f"{key}.{inner}", was.get(inner), now.get(inner), version)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, two) in enumerate(zip(was, now), 1):
            yield from _leaves(f"{key}.{index}", one, two, version)
    elif isinstance(was, list) and isinstance(now, list):
        yield f"{key}: how many", len(was), len(now)
    elif not (version and was is None):
        yield key, was, now
