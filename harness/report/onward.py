"""What stands at the end of a run's lines: whose words were shown, and the command that goes on from here."""

import shlex
from collections.abc import Iterator
from typing import Any

from harness import machine, process
from harness.report.names import FORCED

PURPOSE = "pruned on purpose"  # as evidence of a diagnosis begins


def texts(text: dict[str, Any], pruned: bool) -> Iterator[tuple[str, str]]:
    """`(label, words)` of what was said: one line where both runs say the same, else one for each run.

    text: of a result. pruned: whether the restored state holds less than was read.
    """
    said = text["continuation"]
    count = len(text.get("token_ids") or [])
    more = f"{count} tokens, the first before any step" if count > 1 else ""
    if "streamed" in text:  # what was chosen after it is the next run's to say
        said, more = text["streamed"], f"{machine.many(text['steps'], 'token')} generated"
    restored = text.get("restored")
    if restored in (None, text["continuation"]):
        yield "continuation", f"{said!r}{more and f' ({more})'}"
        return
    first = "the full cache, never interrupted" if pruned else "the uninterrupted run"
    yield "continuation", f"{said!r} ({first}{more and f'; {more}'})"
    yield "pruned" if pruned else "restored", f"{restored!r} (what it chooses {FORCED})"


def cause(diagnosis: dict[str, Any]) -> str:
    """The word that a diagnosis begins with: what was asked for is no damage to a block."""
    meant = str(diagnosis["evidence"]).startswith(PURPOSE)
    return "AS ASKED" if meant else str(diagnosis["cause"]).upper()


def command(result: dict[str, Any]) -> str:
    """The command that goes on from what a run has left; empty where nothing is to be done with it."""
    kept = result.get("next") or (result["snapshot"] if result["task"] == "save" else {})
    if kept.get("path") and kept.get("format") != "memory":
        place = shlex.quote(f"snapshot={kept['path']}")
        return f'{process.spelled()} task=resume {place} text=" ..."'
    if (result["environment"].get("command") or [None])[3:] == []:  # a newcomer's first run
        return f"{process.spelled()} task=ui (to watch it, step by step)"
    return ""
