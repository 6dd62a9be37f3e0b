"""The sentence that a page begins with: the recorded conclusion, and of tasks whose own is brief what it is about, with
figures that the record has."""

from collections.abc import Callable
from typing import Any

from harness import machine
from harness.present.messages import worded
from harness.snapshot.words import fewer, of_kept

SAVED = "Saved: "  # begins the conclusion of a save
PLAIN = "A plain script "  # begins what is said of one beside the checks

Record = dict[str, Any]


def said(result: Record) -> str:
    """The sentence, and in lines of their own the reason, where that says more."""
    task, conclusion = str(result.get("task")), str(result.get("conclusion") or "")
    lines = worded(result.get("reason")).splitlines()
    first = _OF[task](result, conclusion) if task in _OF else conclusion
    more = [line for line in lines if line[1:].rstrip(".") not in first + conclusion]
    return "\n".join([first, *more])


def _save(result: Record, conclusion: str) -> str:
    """What was stored, in how much and where; what was judged says it all."""
    place = (result.get("snapshot") or {}).get("path")
    if result.get("curves") or not place:
        return conclusion
    size, rest = machine.human(result["size"]["stored_bytes"]), conclusion.removeprefix(SAVED)
    return f"{_state(result)} is stored in {size} in `{place}`: {rest[:1].lower()}{rest[1:]}"


def _verify(result: Record, conclusion: str) -> str:
    """Of what it is, and the first fault."""
    if faults := result.get("faults"):
        more = f"; and {machine.many(len(faults) - 1, 'more fault')}" * (len(faults) > 1)
        return f"Not whole, and no restore would take it: {faults[0].rstrip('.')}{more}."
    if not result.get("size"):
        return conclusion
    size = machine.human(result["size"]["stored_bytes"])
    return f"{_state(result)} is whole, {size} on disk: {conclusion[:1].lower()}{conclusion[1:]}"


def _state(result: Record) -> str:
    """What a snapshot holds, by its tokens."""
    kept = f", {of_kept(result, ' of them kept')}," * fewer(result)
    return f"The state after {machine.many(result['size']['tokens'], 'token')}{kept}"


def _faults(result: Record, conclusion: str) -> str:
    """Of faults, what a plain script does with them: that it goes on is why they are looked for."""
    _, *more = worded(result.get("reason")).splitlines()
    return f"{conclusion} {more[0]}" if more and more[0].startswith(PLAIN) else conclusion


_OF: dict[str, Callable[[Record, str], str]] = {
    "save": _save,
    "verify": _verify,
    "faults": _faults,
}
