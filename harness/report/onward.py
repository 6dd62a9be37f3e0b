"""What stands at the end of a run's lines: whose words were shown, and the command that goes on from here."""

import shlex
from collections.abc import Iterator
from typing import Any

from harness import machine, process
from harness.report.names import FORCED

MOST = 3  # ids that are named
PURPOSE = "pruned on purpose"  # as evidence of a diagnosis begins
WHOSE = {
    False: ("the uninterrupted run", "restored"),
    True: ("the full cache, never interrupted", "pruned"),
}


def texts(text: dict[str, Any], pruned: bool) -> Iterator[tuple[str, str]]:
    """`(label, words)` of what was said: one line where both runs say the same, else one for each run.

    text: of a result. pruned: whether the restored state holds less than was read.
    """
    said, ids = text["continuation"], text.get("token_ids") or []
    count = len(ids)
    more = f"{count} tokens, the first before any step" if count > 1 else ""
    if ids and not said:
        few = ", ".join(map(str, dict.fromkeys(ids[:MOST])))
        more += f"{more and '; '}the tokenizer has no text for such ids: {few}"
    if "streamed" in text:  # what was chosen after it is the next run's to say
        said, more = text["streamed"], f"{machine.many(text['steps'], 'token')} generated"
    restored = text.get("restored")
    if restored in (None, text["continuation"]):
        yield "continuation", f"{said!r}{more and f' ({more})'}"
        return
    first, second = WHOSE[pruned]
    yield "continuation", f"{said!r} ({first}{more and f'; {more}'})"
    yield second, f"{restored!r} (what it chooses {FORCED})"


def asked(diagnosis: dict[str, Any]) -> bool:
    """Whether what it found is what was asked for, and no damage."""
    return str(diagnosis["evidence"]).startswith(PURPOSE)


def cause(diagnosis: dict[str, Any]) -> str:
    """The word that a diagnosis begins with: what was asked for is no damage to a block."""
    return "AS ASKED" if asked(diagnosis) else str(diagnosis["cause"]).upper()


def command(result: dict[str, Any]) -> str:
    """The command that goes on from what a run has left; empty where nothing is to be done with it."""
    typed = (result["environment"].get("command") or [None])[3:]
    kept = result.get("next") or (result["snapshot"] if result["task"] == "save" else {})
    if kept.get("path") and kept.get("format") != "memory":
        place = shlex.quote(f"snapshot={kept['path']}")
        return f'{process.spelled()} task=resume {place}{_key(typed)} text=" ..."'
    if typed == []:  # a newcomer's first run
        return f"{process.spelled()} task=ui (to watch it, step by step)"
    return ""


def _key(typed: list[str]) -> str:
    """What opens a snapshot that was written encrypted, as the next argument: with the key that read the last one
    unless another was given."""
    given = dict(word.split("=", 1) for word in typed if "=" in word)
    key = given.get("encrypt", given.get("decrypt"))
    return "" if key in (None, "none", "null") else " " + shlex.quote(f"decrypt={key}")
