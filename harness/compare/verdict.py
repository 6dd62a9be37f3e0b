"""The verdict: is it still the same thought? No flat tolerance; the plain path sets the scale.

First the yardstick: where the plain paths themselves are not sound, nothing is said about the restored
one. Then `equivalent` follows the FlashAttention tests: the error against a float64 oracle may be at
most twice the uncached run's own error against it, and no top-1 choice may change beyond what the
measured noise floor explains.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import torch

from harness.compare.identity import Difference
from harness.compare.soundness import Soundness
from harness.results.reason import Code, Reason, reason

FACTOR = 2.0
HOW = {True: "drawn", False: "chosen"}  # a token


def errors(
    restored: torch.Tensor, plain: torch.Tensor, oracle: torch.Tensor | None
) -> dict[str, Any]:
    """Largest and mean error of both paths against the float64 `oracle` (None: not measured).

    plain: the run that sets the scale, uncached in the working dtype.
    """
    if oracle is None:
        return {"restored": None, "plain": None, "ratio": None}
    ours = (restored.double() - oracle).abs()
    theirs = (plain.double() - oracle).abs()
    top, base = float(ours.max()), float(theirs.max())
    return {
        "restored": top,
        "plain": base,
        "ratio": top / base if base else (1.0 if top == 0 else None),
        "restored_mean": float(ours.mean()),
        "plain_mean": float(theirs.mean()),
    }


def same_tokens(why: Reason, drawn: bool) -> Reason:
    """Of a drifted run: what is off, and that every token is the same."""
    return reason(Code.SAME_TOKENS, why=why, how=HOW[drawn])


def decide(
    restored: torch.Tensor,
    plain: torch.Tensor,
    metrics: Mapping[str, Any],
    noise: Mapping[str, Any],
    oracle: Mapping[str, Any],
    other_token: int | None,
    waived: Sequence[Difference],
    soundness: Soundness | None = None,
    against: str = "the uninterrupted run",
    stored: Mapping[str, Any] | None = None,
    given: int = 0,
    drawn: bool = False,
) -> tuple[str, Reason]:
    """`(verdict, reason)` for logits `[batch, steps, vocab]` of the restored and the plain path.

    other_token: after which step the restored path first chose (or drew) another token: 0 from the
    stored logits, before any step; None where it never did.
    waived: identity differences that were overridden; with any, the best verdict is `drifted`.
    soundness: of the plain paths (None: judged elsewhere). against: what `plain` is, in words.
    stored: `errors` of the logits that came with the state; None where they are the very same.
    given: the first so many steps read a text. drawn: the tokens after it need not be the most likely ones.
    """
    if soundness is not None and not soundness.sound:
        return "unsound", soundness.reason
    if not bool(torch.isfinite(restored).all()):
        return "diverged", reason(Code.NOT_FINITE_LOGITS)
    if waived:
        verdict = "drifted" if other_token is None else "diverged"
        return verdict, reason(Code.WAIVED, count=len(waived), first=str(waived[0]))
    apart = None if stored is None else _apart(stored, noise, oracle)
    if metrics["bitwise_equal"] and other_token is None and apart is None:
        return "exact", reason(Code.BIT_EQUAL, against=against)
    within, rule = _within(metrics, noise, oracle)
    if apart is not None and (metrics["bitwise_equal"] or not apart[0]):
        within, rule = apart
    if other_token is not None and not (within and _explained(restored, plain, noise)):
        code, first = Code.OTHER_TOKEN, metrics.get("first_divergence")
        if first is not None and first < given and first + 1 < other_token:
            code = Code.OTHER_GENERATED  # an earlier step read what was given
        code = code if other_token else Code.OTHER_FIRST_TOKEN
        return "diverged", reason(code, step=other_token or None, how=HOW[drawn], why=rule)
    if within:
        return "equivalent", rule
    return "drifted", same_tokens(rule, drawn)


def _within(
    metrics: Mapping[str, Any], noise: Mapping[str, Any], oracle: Mapping[str, Any]
) -> tuple[bool, Reason]:
    if oracle["restored"] is not None:
        ours, plain = oracle["restored"], oracle["plain"]
        rule = reason(Code.ORACLE_ERROR, restored=ours, plain=plain)
        return ours <= FACTOR * plain < inf, rule
    gap, floor = metrics["max_abs_diff"], noise["max_abs_diff"]
    return gap <= FACTOR * floor < inf, reason(Code.NOISE_GAP, gap=gap, floor=floor)


def _apart(
    stored: Mapping[str, Any], noise: Mapping[str, Any], oracle: Mapping[str, Any]
) -> tuple[bool, Reason]:
    """As `_within`, of the logits that were stored with the state."""
    off = stored["restored"]
    allowed = FACTOR * max(stored["plain"], oracle["plain"] or noise["max_abs_diff"])
    rule = reason(Code.STORED_LOGITS, off=off, bound=allowed)
    return off <= allowed < inf, rule


def _explained(restored: torch.Tensor, plain: torch.Tensor, noise: Mapping[str, Any]) -> bool:
    """Whether every changed top-1 choice was a tie within twice the noise floor."""
    chosen, other = restored.argmax(-1, keepdim=True), plain.argmax(-1, keepdim=True)
    lead = plain.double().gather(-1, other) - plain.double().gather(-1, chosen)
    return float(lead.max()) <= tie(noise) < inf


def tie(noise: Mapping[str, Any]) -> float:
    """How far apart two logits may be for rounding to decide between them: twice the noise floor."""
    return float(FACTOR * noise["max_abs_diff"])
