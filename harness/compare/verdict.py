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

FACTOR = 2.0


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


KEPT = "every {} token is the same"


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
) -> tuple[str, str]:
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
        return "diverged", "the restored path produced logits that are not finite"
    if waived:
        verdict = "drifted" if other_token is None else "diverged"
        count = "1 difference" if len(waived) == 1 else f"{len(waived)} differences"
        which = "the first is " * (len(waived) > 1)
        return verdict, f"restored with {count} waived ({which}{waived[0]})"
    apart = None if stored is None else _apart(stored, noise, oracle)
    if metrics["bitwise_equal"] and other_token is None and apart is None:
        return "exact", f"logits are bit-equal to {against}"
    within, rule = _within(metrics, noise, oracle)
    if apart is not None and (metrics["bitwise_equal"] or not apart[0]):
        within, rule = apart
    if other_token is not None and not (within and _explained(restored, plain, noise)):
        verb = "draw" if drawn else "choose"
        who = f"step {other_token} {verb}s" if other_token else f"the stored logits {verb}"
        first = metrics.get("first_divergence")
        if first is not None and first < given and first + 1 < other_token:
            who = f"of what was generated, {who}"  # an earlier step read what was given
        return "diverged", f"{who} another token; {rule}"
    if within:
        return "equivalent", rule
    return "drifted", f"{rule}; {KEPT.format('drawn' if drawn else 'chosen')}"


def _within(
    metrics: Mapping[str, Any], noise: Mapping[str, Any], oracle: Mapping[str, Any]
) -> tuple[bool, str]:
    if oracle["restored"] is not None:
        ours, plain = oracle["restored"], oracle["plain"]
        ratio = f"error against float64 {ours:.3g}, plain path {plain:.3g}"
        return ours <= FACTOR * plain < inf, ratio
    gap, floor = metrics["max_abs_diff"], noise["max_abs_diff"]
    return gap <= FACTOR * floor < inf, f"largest difference {gap:.3g}, noise floor {floor:.3g}"


def _apart(
    stored: Mapping[str, Any], noise: Mapping[str, Any], oracle: Mapping[str, Any]
) -> tuple[bool, str]:
    """As `_within`, of the logits that were stored with the state."""
    off = stored["restored"]
    allowed = FACTOR * max(stored["plain"], oracle["plain"] or noise["max_abs_diff"])
    rule = f"the stored logits are off by {off:.3g}, rounding explains {allowed:.3g}"
    return off <= allowed < inf, rule


def _explained(restored: torch.Tensor, plain: torch.Tensor, noise: Mapping[str, Any]) -> bool:
    """Whether every changed top-1 choice was a tie within twice the noise floor."""
    chosen, other = restored.argmax(-1, keepdim=True), plain.argmax(-1, keepdim=True)
    lead = plain.double().gather(-1, other) - plain.double().gather(-1, chosen)
    return float(lead.max()) <= tie(noise) < inf


def tie(noise: Mapping[str, Any]) -> float:
    """How far apart two logits may be for rounding to decide between them: twice the noise floor."""
    return float(FACTOR * noise["max_abs_diff"])
