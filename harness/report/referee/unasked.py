"""Cases that a referee's engine could not be asked here, and why, in a few words."""

from collections.abc import Mapping
from typing import Any

from harness import machine

BEFORE = "not judged: "  # each such case among what was judged, with its reason
PACKAGE = "it needs the package "


def sentence(known: Mapping[str, Any]) -> str:
    """`3 cases were not judged (2 need CUDA, 1 needs hqq).`, after a space; empty where every one was."""
    why = [_why(str(reason)) for name, reason in known.items() if name.startswith(BEFORE)]
    if not why:
        return ""
    told = [
        f"{why.count(word)} need{'s' * (why.count(word) == 1)} {word}"
        for word in dict.fromkeys(why)
    ]
    verb = "was" if len(why) == 1 else "were"
    return f" {machine.many(len(why), 'more case')} {verb} not judged ({', '.join(told)})."


def _why(reason: str) -> str:
    """What is needed."""
    if reason.startswith(PACKAGE):
        return reason.removeprefix(PACKAGE)
    return "CUDA" if "cuda" in reason.lower() else "what is not here"
