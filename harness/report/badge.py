"""The verdict above a page: one colour and one sign for each, wherever it is shown."""

from typing import Any

from harness.snapshot.result import MISSED, PASSED, outcome

KIND = {"exact": "good", "equivalent": "alike", "drifted": "fair", "diverged": "bad", "unjudged": "soft",
        "unsound": "bad", "refused": "bad", "failed": "bad"}  # fmt: skip
SIGNS = {"exact": "=", "equivalent": "\u2248", "drifted": "\u0394", "diverged": "\u2260", "unjudged": "?",
         "unsound": "!", "refused": "\u2013", "failed": "\u00d7"}  # fmt: skip


def kind(verdict: Any) -> str:
    """Which colour a verdict has; what is no verdict has that of what was not judged."""
    return KIND.get(str(verdict), "soft")


def badge(result: dict[str, Any]) -> tuple[str, str]:
    """`(words, colour)` above the page of a `result.json`; no words where its conclusion stands alone."""
    words = outcome(result)
    if words in PASSED.values():
        return words, "good"
    return words, "bad" if words in MISSED.values() else kind(words)
