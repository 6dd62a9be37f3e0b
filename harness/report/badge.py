"""The verdict above a page: one colour and one sign for each, wherever it is shown."""

from typing import Any

from harness.snapshot.result import ALONE, COMPARED, GOOD, MISSED, PASSED, UNJUDGED, outcome, worse
from harness.snapshot.words import purpose

KIND = {"exact": "good", "equivalent": "alike", "drifted": "fair", "diverged": "bad", "unjudged": "soft",
        "unsound": "bad", "refused": "bad", "failed": "bad"}  # fmt: skip
SIGNS = {
    "exact": "=",
    "equivalent": "\u2248",
    "drifted": "\u0394",
    "diverged": "\u2260",
    "unjudged": "?",
    "unsound": "!",
    "refused": "\u2013",
    "failed": "\u00d7",
}
SETTLED = {"holds": ("good", "\u2713"), "depends": ("fair", "\u25d0"), "refuted": ("bad", "\u00d7")}  # a claim  # fmt: skip


def kind(verdict: Any) -> str:
    """Which colour a verdict has, or a task's own word; anything else has that of what was not judged."""
    passed, not_passed = zip(*ALONE.values(), strict=True)
    if verdict in (*PASSED.values(), *passed):
        return "good"
    if verdict in (*MISSED.values(), *not_passed):
        return "bad"
    return KIND.get(str(verdict)) or SETTLED.get(str(verdict), ("soft",))[0]


def sign(verdict: Any) -> str:
    """Its sign: that of the verdict, a tick or a cross for a task's own word, none for what says nothing."""
    if str(verdict) in SETTLED:
        return SETTLED[str(verdict)][1]
    own = {"good": "\u2713", "bad": "\u00d7"}.get(kind(verdict), "")
    return SIGNS.get(str(verdict), own)


def pills(result: dict[str, Any]) -> list[dict[str, str]]:
    """What a pruned or a quantized state came to, each with `text`, `kind` and `sign`: whether it came back as it was
    kept, and what that changed, which is wrong only where more was required of it. Empty where there is one verdict."""
    block, verdict = result.get("itself") or {}, str(result.get("verdict"))
    own = str(block.get("verdict"))
    done = purpose(result)
    if not done or verdict not in COMPARED or own in ("None", UNJUDGED):
        return []
    saved, good = block.get("against") == "saved", own in GOOD
    words = (
        f"{'' if good else 'not '}restored as saved" if saved else f"same in another cache: {own}"
    )
    first = {
        "text": words,
        "kind": "good" if good else "bad",
        "sign": "\u2713" if good else "\u00d7",
    }
    asked = str(result.get("required") or GOOD[-1])
    allowed = not worse(verdict, asked)
    tone = allowed_kind(verdict) if allowed else "bad"
    missed = f", not met: {asked} was required" * (not allowed)
    return [first, {"text": f"{done}: {verdict}{missed}", "kind": tone, "sign": sign(verdict)}]


def allowed_kind(verdict: str) -> str:
    """The colour of what pruning came to where that is allowed: other logits are what was asked for."""
    return kind(verdict) if verdict in GOOD else "soft"


def badge(result: dict[str, Any]) -> tuple[str, str]:
    """`(words, colour)` above the page of a `result.json`; no words where its conclusion stands alone."""
    words = outcome(result)
    return words, kind(words)
