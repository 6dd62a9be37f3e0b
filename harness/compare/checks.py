"""The checks behind a verdict: what was asked, what came out, and by which figures.

A check that should have been asked and was not keeps a verdict from being better than `drifted`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PASSED, FAILED, NOT_ASKED = "passed", "failed", "not asked"

MESSAGES = {
    "unsound": "{path} is off by {error:.3g} from the model without a cache, rounding explains {bound:.3g}",
    "function": "the cache computes another function: in {dtype} its logits are off by {off:.3g}, rounding explains {bound:.3g}",
    "several": "fed several tokens at once, the cache computes another function: off by {off:.3g}, rounding explains {bound:.3g}",
    "crop": "after a crop the cache computes another function: off by {off:.3g}, rounding explains {bound:.3g}",
    "crop_raises": "after a crop the cache fails ({why})",
    "row": "what it goes on from is not what its ids give: the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, {bound:g} allowed",
    "foreign": "what it goes on from is not what its ids give: the {part} of token {token} in layer {layer}, head {head} is no nearer to its own token than to others",
    "head": "what it goes on from is not what its ids give: {evidence}",
    "state": "what it goes on from is not what its ids give: the {part} of layer {layer} is {off:.3g} noise floors off, {bound:g} allowed",
    "not_finite": "what it goes on from is not what its ids give: the {part} of layer {layer} is not finite",
    "missing": "what it goes on from is not what its ids give: layer {layer} lacks {part}",
    "coarse": "what it goes on from is not what its ids give: the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, near to its own token, {bound:g} allowed",
    "rewritten": "what it hands on is not what it went on from: layer {layer} holds another past",
    "next_row": "what would be stored next is not right: the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, {bound:g} allowed",
    "next_coarse": "what would be stored next is not right: the {part} of token {token} in layer {layer}, head {head} is {off:.3g} noise floors off, {bound:g} allowed",
    "next_state": "what would be stored next is not right: the {part} of layer {layer} is {off:.3g} noise floors off, {bound:g} allowed",
    "next_missing": "what would be stored next is not right: layer {layer} lacks {part}",
    "next_not_finite": "what would be stored next is not right: the {part} of layer {layer} is not finite",
    "refused": "the cache cannot be asked in float64 or float32 ({why})",
    "pruned_again": "what was read between two prunings cannot be computed again",
    "no_other_cache": "no other cache serves this state",
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One question. outcome: PASSED, FAILED or NOT_ASKED. code: why, or in which way. needed: a good verdict rests on it."""

    name: str
    outcome: str
    code: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    needed: bool = True

    @classmethod
    def of(
        cls, name: str, off: float, bound: float, bad: str, good: str = "", **more: Any
    ) -> "Check":
        """PASSED where `off` is at most a finite `bound`; NaN is not."""
        fine = off <= bound < float("inf")
        figures = {"off": off, "bound": bound, **more}
        return cls(name, PASSED if fine else FAILED, good if fine else bad, figures)

    def __str__(self) -> str:
        return MESSAGES.get(self.code, self.code).format_map(self.figures)

    def row(self) -> dict[str, Any]:
        """JSON-able, an entry of `checks` in `result.json`."""
        return {
            "name": self.name,
            "outcome": self.outcome,
            "code": self.code,
            "figures": dict(self.figures),
        }


def failed(checks: Iterable[Check]) -> Check | None:
    """The first check that failed."""
    return next((check for check in checks if check.outcome == FAILED), None)


def unasked(checks: Iterable[Check]) -> Check | None:
    """The first check that a good verdict needs and that was not asked."""
    return next((check for check in checks if check.outcome == NOT_ASKED and check.needed), None)
