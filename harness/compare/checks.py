"""The checks behind a verdict: what was asked, what came out, and by which figures.

A check that should have been asked and was not keeps a verdict from being better than `drifted`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.present.messages import sentence
from harness.results.reason import Reason, reason

PASSED, FAILED, NOT_ASKED = "passed", "failed", "not asked"


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
        return sentence(self.code, self.figures)

    @property
    def reason(self) -> Reason:
        """What it found, or why it was not asked, as the reason of a verdict."""
        return reason(self.code, **self.figures)

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
