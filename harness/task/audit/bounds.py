"""What each figure of a record is held to beside that of its second run, and why: the rules of `difference` and
`tolerance` as an audit's page tells them, where the bits may differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.compare.soundness import FACTOR as SPREAD
from harness.report.audit import figures
from harness.snapshot.result import GOOD
from harness.task.audit import refusal
from harness.task.audit.difference import EXACT, FACTOR, FORMLESS, ROUNDED, allowance
from harness.task.audit.tolerance import FREE, HEADERS

EQUAL = "equal", "the same wherever it runs"
BITS = (
    "exact or equivalent",
    "other bits are no other thought: both words say that only rounding differs",
)
JUMPS = "not compared", "it jumps where a logit is near 0"
LOGITS = f"{FACTOR:g} times the noise floor of the second run"
SHARE = "the noise floor of the second run changes as many"
ERROR = (
    f"at most {SPREAD:.0f} times larger or smaller",
    "another order of the same sums moves an error of rounding within that factor",
)
STORED = f"within {HEADERS:.0%}", "the files' headers name versions"
NOISE = (
    f"each within a factor of {SPREAD:.0f}",
    "another order of the same sums moves an error of rounding within that factor",
)
LISTS = {  # of values that a page counts in one row: as `difference` and `tolerance` judge them
    "text.token_ids": EQUAL,
    "text.restored_ids": EQUAL,
    "elements": (
        "equal but " + " and ".join((", ".join(ROUNDED[:-1]), ROUNDED[-1])),
        "these were computed in floating point, and their figures are compared instead",
    ),
    "curves": (
        f"as many steps, the noise on average within a factor of {SPREAD:.0f}",
        "the highest step of the restored run is a figure above",
    ),
    "noise_floor": NOISE,
    "soundness": NOISE,
    "diagnosis.picture": refusal.ROUNDED,
    "known.elements": refusal.ROUNDED,
}


def bounds(
    recorded: Mapping[str, Any], again: Mapping[str, Any], changed: list[dict[str, Any]]
) -> dict[str, dict[str, str]]:
    """`figure -> held_to, why` of every figure that a page shows; none where nothing changed that decides the
    bits, since then every one has to be the same. changed: from `difference.changes`."""
    if not any(c["decisive"] for c in changed):
        return {}
    try:
        return {key: {"held_to": held, "why": why} for key, (held, why) in _every(recorded, again)}
    except FORMLESS:  # a difference by itself
        return {}


def _every(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:  # fmt: skip
    if again.get("verdict"):
        yield "verdict", BITS if again["verdict"] in GOOD else EQUAL
    listed = figures.lists(recorded) | figures.lists(again)
    if figures.came(again):
        named = [key for key in figures.figures(again) if key != "verdict"]
        yield from ((key, refusal.ROUNDED) for key in [*named, *listed])
        return
    yield from ((key, LISTS[key]) for key in listed)
    for block in ("metrics", "oracle", "size"):
        was, now = recorded.get(block) or {}, again.get(block) or {}
        for key in dict.fromkeys([*was, *now]):
            pair = was.get(key), now.get(key)
            if block == "metrics":
                yield f"{block}.{key}", _metric(key, *pair, again.get("noise_floor") or {})
            else:
                yield f"{block}.{key}", _other(block, key, *pair)


def _metric(key: str, was: Any, now: Any, noise: Mapping[str, Any]) -> tuple[str, str]:
    """As `difference.explained` judges it."""
    if key == "bitwise_equal":
        return "not compared", "the verdict says whether it matters"
    if key == "first_divergence":
        if noise.get(key) is None:
            return "equal", "the second run's noise floor changes no token"
        return "not compared", "the second run's noise floor changes a token too"
    if not all(isinstance(v, int | float) for v in (was, now)):
        return EQUAL
    why = SHARE if key in ("top1_agreement", "top5_overlap") else LOGITS
    return f"at most {allowance(key, was, now, [dict(noise)]):.3g} apart", why


def _other(block: str, key: str, was: Any, now: Any) -> tuple[str, str]:
    """As `tolerance.leaves` judges it."""
    if key in EXACT.get(block, ()):
        return EQUAL
    if FREE.fullmatch(f"{block}.{key}"):
        return JUMPS
    if type(was) is type(now) is int and key.endswith("bytes"):
        return STORED
    return ERROR if float in (type(was), type(now)) else EQUAL
