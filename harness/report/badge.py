"""The verdict above a page: one colour and one sign for each, wherever it is shown."""

from typing import Any

from harness.snapshot.result import UNJUDGED

KIND = {"exact": "good", "equivalent": "alike", "drifted": "fair", "diverged": "bad", "unjudged": "soft",
        "unsound": "bad", "refused": "bad", "failed": "bad"}  # fmt: skip
SIGNS = {"exact": "=", "equivalent": "\u2248", "drifted": "\u0394", "diverged": "\u2260", "unjudged": "?",
         "unsound": "!", "refused": "\u2013", "failed": "\u00d7"}  # fmt: skip
COMPARING = ("experiment", "resume", "chat", "referee")  # a verdict is what they are for
PASSED = {"save": "saved", "verify": "intact", "faults": "every fault caught", "diff": "the same",
          "architectures": "no cell is wrong"}  # fmt: skip
MISSED = {"faults": "not every fault caught", "architectures": "a cell is wrong"}


def kind(verdict: Any) -> str:
    """Which colour a verdict has; what is no verdict has that of what was not judged."""
    return KIND.get(str(verdict), "soft")


def badge(result: dict[str, Any]) -> tuple[str, str]:
    """`(words, colour)` above the page of a `result.json`. No words where the task compares nothing that
    could be the same thought: its conclusion stands alone."""
    verdict, task = str(result["verdict"]), str(result.get("task", COMPARING[0]))
    compared = any(value is not None for value in (result.get("metrics") or {}).values())
    if task in MISSED and verdict in ("failed", "diverged"):
        return MISSED[task], "bad"
    if task in PASSED and verdict in ("exact", "equivalent", UNJUDGED) and not compared:
        return PASSED[task], "good"
    if verdict == UNJUDGED and task not in COMPARING:
        return "", "soft"
    return verdict, kind(verdict)
