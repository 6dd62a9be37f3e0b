"""The verdict above a page: one colour and one sign for each, wherever it is shown."""

from typing import Any

from harness.snapshot.result import MISSED, PASSED, outcome

KIND = {"exact": "good", "equivalent": "alike", "drifted": "fair", "diverged": "bad", "unjudged": "soft",
        "unsound": "bad", "refused": "bad", "failed": "bad"}  # fmt: skip
SIGNS = {"exact": "=", "equivalent": "\u2248", "drifted": "\u0394", "diverged": "\u2260", "unjudged": "?",
         "unsound": "!", "refused": "\u2013", "failed": "\u00d7"}  # fmt: skip


def kind(verdict: Any) -> str:
    """Which colour a verdict has, or a task's own word; anything else has that of what was not judged."""
    if verdict in PASSED.values() or verdict in MISSED.values():
        return "good" if verdict in PASSED.values() else "bad"
    return KIND.get(str(verdict), "soft")


def sign(verdict: Any) -> str:
    """Its sign: that of the verdict, a tick or a cross for a task's own word, none for what says nothing."""
    own = {"good": "\u2713", "bad": "\u00d7"}.get(kind(verdict), "")
    return SIGNS.get(str(verdict), own)


def badge(result: dict[str, Any]) -> tuple[str, str]:
    """`(words, colour)` above the page of a `result.json`; no words where its conclusion stands alone."""
    words = outcome(result)
    return words, kind(words)
