"""What the page says: the harness's own messages, whose remedies are those of a command line, in the words
of the page."""

import re
from pathlib import Path
from typing import Any

from harness import machine
from harness.errors import HarnessError, InputProblem, RestoreRefused, SnapshotInvalid
from harness.snapshot.history import tokens_held
from harness.snapshot.words import on_average, uneven
from harness.task.ui import picture
from harness.task.ui.desk import POLICIES, QUANTIZERS, Desk

REMEDIES = (
    (r"Give text=\.\.\.", "Type a prompt first."),
    (r"^the prompt has (\d+) tokens and", r"this thought has \1 tokens and"),
    (r"Continue fewer tokens, or prune and reindex the state first", "Go back to an earlier token, or start anew"),
    (r"Shorten the prompt or the steps \(steps=N\)", "Use a shorter text, or fewer tokens of a run"),
    (r"restore refused: what was saved at (.+?) is not what is loaded now:",
     r"Snapshot \1 does not fit:"),
    (r"the snapshot at (.+?) is not valid", r"Snapshot \1 is not valid"),
    (r", which explains the other \d+\.", "."),
    (r",? or pass `restore\.strict=false`.*", "."),
    (r"; `restore\.strict=false` does not waive damage", ""),
    (r"Load the model and tokenizer it", "Start the page with the model and tokenizer it"),
    (r"it was saved with: model=(?:path model\.path=)?(\S*\w)", r"it was saved with, \1"),
    (r"prune\.tokens=(\S+)", r"Tokens to keep, \1,"),
    (r", or prune=none", ""),
    (r" Use (?:prune|quantize)=none\.?", ""),
    (r" Or leave it out: .*", " Untick it."),
    (r"prune\.sinks=(\d+)\. .*", r"the \1 first ones, which this policy always keeps. Keep more."),
    (r"prune\.protect keeps the first (\d+)\. .*", r"the first \1 are protected. Keep more."),
    (r"with prune\.per_head=false", "without 'Each KV head for itself'"),
    (r"or prune the unpruned state", "or undo the earlier pruning"),
    (r"(?:prune|quantize)=(\w+)", r"\1"),
    (r"sampling\.(\w+)=(\S+)", r"\1 \2"),
    (r"\bat=(-?\d+)", r"token \1"),
    (r"Go back in the snapshot it was pruned from", "Undo the pruning, or load what was saved before it"),
    (r"prompt\.path=", "file "),
    (r"\b1 tokens\b", "1 token"),
)  # fmt: skip
ELEMENT = re.compile(r"(?<=  - )element \w+ \w+: ")  # which of the thirteen says it is for the list
STOPPING = "Stopping, as soon as the model has finished what it is at."
NAMES = (*POLICIES, *QUANTIZERS)
SETTING = re.compile(r"(?<![\w.`])[a-z_]+(?:\.[a-z_]+)*=[\w./]+")


def said(problem: Exception) -> str:
    """What `problem` says, on the page."""
    if not isinstance(problem, HarnessError):
        return f"Unexpected {type(problem).__name__}: {problem} (a fault of the harness)"
    text = str(problem)
    if isinstance(problem, RestoreRefused | SnapshotInvalid):  # the page knows it by its name
        text = text.replace(str(problem.where), Path(problem.where).name)
    for command, here in REMEDIES:
        text = re.sub(command, here, text, flags=re.DOTALL)
    if SETTING.search(text):
        text += " (Settings like this one are given when the page is started.)"
    name = text.partition(" ")[0]
    return text if name in NAMES else text[:1].upper() + text[1:]


def told(problem: Exception) -> tuple[str, list[str]]:
    """What `problem` says, the first of its reasons alone; and its other reasons."""
    lines = said(problem).split("\n")
    listed = [n for n, line in enumerate(lines) if line.startswith("  ")]
    first, *rest = listed or [0]
    if listed:
        lines[first] = ELEMENT.sub("", lines[first]) + "."
    one = " ".join(line.strip(" -") for n, line in enumerate(lines) if n not in rest)
    if isinstance(problem, RestoreRefused):  # of which its message lists a few
        return one, [str(row) for row in problem.differences[1:]]
    return one, [lines[n].strip(" -") for n in rest]


def greeting(desk: Desk) -> str:
    """What a page says that opens."""
    if desk.running is not None:
        return f"{desk.running}"
    many = len(desk.branches)
    kept = f" {many} branches, as you left them." if many > 1 else " One branch, as you left it."
    anew = "" if desk.undoable or desk.redoable else " What comes now can be undone."
    said = f"{kept}{anew}" if many else " Start reads the prompt."
    return f"Ready.{said}{picture.problems(*desk.aside)}"


def beside(desk: Desk) -> str:
    """That a new branch took nothing away from the others."""
    return f", as branch {desk.current}; the others are kept" if len(desk.branches) > 1 else ""


def read(desk: Desk) -> str:
    """What the tokenizer policy made of a blank prompt."""
    text = desk.text(desk.branch.state.token_ids[0].tolist())
    return f"what was read is {desk.cfg.tokenizer.name}'s own, <code>{picture.shown(text)}</code>."


def needing(manifest: dict[str, Any]) -> str:
    """Which snapshots the one of `manifest` takes files from; nothing where it is complete in itself."""
    places = sorted({row["place"] for row in manifest["lineage"]})
    return f"; it needs {picture.safe(' and '.join(places))} beside it" if places else ""


def counted(tokens: int) -> str:
    """So many tokens."""
    return machine.many(tokens, "token")


def whole(value: Any, most: int, name: str) -> int:
    """What was typed into the box `name`: a whole number, 1 to `most`. Raises InputProblem for anything
    else."""
    if not isinstance(value, int | float) or not 1 <= value <= most or value != int(value):
        what = "is empty" if value is None else f"cannot be {value:,.10g}"
        given = f"Type a whole number from 1 to {most}" if most > 1 else "It can only be 1 here"
        raise InputProblem(f"'{name}' {what}. {given}.")
    return int(value)


def pruned(desk: Desk, policy: str, gone: int, keep: int) -> str:
    """What a policy did that was to leave `keep` tokens."""
    left = desk.branch.state.kept_tokens
    if not gone:
        return f"Policy {policy} dropped nothing: the cache holds {counted(left)}, and {keep} may stay. Choose fewer tokens to keep."
    apart = any(layer.per_head for layer in desk.branch.state.layers)
    each = " Each KV head chose its own: struck out is what none of them holds." * apart
    _, mean = tokens_held(desk.branch.state)
    said = f"dropped {counted(gone)}, {left} {'is' if left == 1 else 'are'} held"
    if uneven(left, mean):
        said = f"dropped tokens, {on_average(left, mean, ' are held')}"
    return f"Policy {policy} {said}.{each}{unasked(desk)}"


def quantized(desk: Desk, name: str, codes: int, before: int, again: bool) -> str:
    """What a quantizer did. again: some were codes before."""
    said = (
        f"Quantizer {name}: the cache takes {picture.size(codes)} instead of {picture.size(before)}"
    )
    what = "; the model now reads what the codes say."
    if again:
        what = "; it coded what was not yet in codes, and the earlier codes stay as they were."
    return f"{said}{what}{unasked(desk)}"


def unasked(desk: Desk) -> str:
    """Whether the next token is still the one from before the last act."""
    return "" if desk.asked else " Next token is as it was before; the next step shows the change."
