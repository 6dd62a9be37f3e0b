"""What was edited in a record after its seal, as an audit tells it: each edit once, however many of MLflow's own words
and copies it makes disagree."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from harness import machine
from harness.report import names
from harness.snapshot.digest import digest_document

FILE = "another file was sealed"  # of a file that is not the one of its digest
SEALED = "value was sealed"  # of a claim that is not the one of its digest
RESULT, MLFLOW = "result.json: ", "mlflow: "
DIGEST = re.compile(r"sealed digest ([0-9a-f]{64})")
SPOKEN = ("verdict", "reason", "conclusion")  # what a name, a mark and a description are made of
SHOWN = ("name", "description", "outcome", "conclusion", "status", "exit_code", "verdict", "reason")
NAMED = 3  # edits that a sentence names

Row = Mapping[str, Any]


def is_edit(row: Row) -> bool:
    """Whether it is a value of `result.json` that is not the one that was sealed."""
    return str(row.get("found")).endswith(SEALED) and str(row["what"]).startswith(RESULT)


def claim(row: Row) -> str:
    return str(row["what"]).removeprefix(RESULT)


def original(edit: Row, rows: Sequence[Row]) -> tuple[Any, str] | None:
    """The value that was sealed, and where it stands still: `MLflow` or `run again`. It is one whose digest is the
    sealed one; None where no row has it."""
    known = DIGEST.search(str(edit.get("explanation")))
    if not known:
        return None
    for row in rows:
        value = row.get("found")
        if row is edit or row.get("point") != edit.get("point"):
            continue
        ways = [value]
        if isinstance(value, float) and value.is_integer():
            ways.append(int(value))  # a server keeps every number as a float
        for one in ways:
            if digest_document(one) == known[1]:
                return one, "MLflow" if str(row["what"]).startswith(MLFLOW) else "run again"
    return None


def follows(row: Row, edits: Sequence[Row]) -> bool:
    """Whether it says no more than one of these edits does: MLflow has the value that was sealed, its copy of
    `result.json` is that of before, and what it shows of the verdict is what that was."""
    mine = [edit for edit in edits if edit.get("point") == row.get("point")]
    what = str(row["what"])
    if any(claim(edit) == what for edit in mine):
        return True  # the second run says otherwise, too
    if not what.startswith(MLFLOW) or not mine:
        return False
    key = what.removeprefix(MLFLOW)
    if key == "artifact result.json":
        return True
    if any(claim(edit) in SPOKEN for edit in mine) and key.rpartition(": ")[2] in SHOWN:
        return True
    return any(original(edit, [edit, row]) for edit in mine)


def told(rows: Sequence[Row], show: Any) -> str:
    """What was edited, and how many differences there are beside. show: of a value, how it is written; empty where
    nothing was edited."""
    edits = [row for row in rows if is_edit(row)]
    if not edits:
        return ""
    numbers = all(isinstance(e["recorded"], int | float) for e in edits)
    count = machine.many(len(edits), "figure" if numbers else "value")
    were = "was" if len(edits) == 1 else "were"
    named = ", ".join(_edit(edit, rows, show) for edit in edits[:NAMED])
    named += f", and {len(edits) - NAMED} more" * (len(edits) > NAMED)
    said = f"{count} {were} edited after the record was sealed: {named}"
    rest = sum(not is_edit(row) and not follows(row, edits) for row in rows)
    return f"{said}; and {machine.many(rest, 'more difference')}" if rest else said


def _edit(edit: Row, rows: Sequence[Row], show: Any) -> str:
    where = f" of point {names.folder(edit['point'])}" if edit.get("point") else ""
    now = show(edit["recorded"])
    if not (known := original(edit, rows)):
        return f"{claim(edit)}{where} is {now}, {edit['found']}"
    value, place = known
    was, is_now = value, edit["recorded"]
    if isinstance(was, str) and isinstance(is_now, str):
        was, is_now = _parted(was, is_now)
    still = (
        "MLflow still shows the original" if place == "MLflow" else "run again it is the original"
    )
    return f"{claim(edit)}{where} {show(was)} -> {show(is_now)} ({still})"


def shared(one: str, two: str) -> int:
    """How many characters two texts begin alike with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _parted(one: str, two: str) -> tuple[str, str]:
    """Two texts from the word on in which they first differ."""
    start = one.rfind(" ", 0, shared(one, two)) + 1
    return (f"...{one[start:]}", f"...{two[start:]}") if start else (one, two)


def sealed(edit: Row, rows: Sequence[Row], show: Any) -> str:
    """What was found of an edited value, for its row: the value itself where it is known."""
    known = original(edit, rows) if is_edit(edit) else None
    return f"{show(known[0])} was sealed" if known else ""


def disagreeing(rows: Sequence[Row]) -> list[str]:
    """What of MLflow is not as the record has it."""
    return [
        str(row["what"]).removeprefix(MLFLOW)
        for row in rows
        if str(row["what"]).startswith(MLFLOW) or "tracking store" in str(row.get("explanation"))
    ]
