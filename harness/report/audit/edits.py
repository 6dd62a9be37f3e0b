"""What was edited in a record after its seal, as an audit tells it: each edit once, however many of MLflow's own words
and copies it makes disagree."""

import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from harness import machine
from harness.report import names
from harness.snapshot.digest import digest_document
from harness.snapshot.result import ORDER

FILE = "another file was sealed"  # of a file that is not the one of its digest
TABLE = "another table was sealed"  # the same of a sweep's
SEALED = "value was sealed"  # of a claim that is not the one of its digest
RESULT, MLFLOW, CELLS = "result.json: ", "mlflow: ", "sweep.csv: "
DIGEST = re.compile(r"sealed digest ([0-9a-f]{64})")
SPOKEN = ("verdict", "reason", "conclusion")  # what a name, a mark and a description are made of
WORDS = SPOKEN[1:]  # which tell of a figure
SHOWN = ("name", "description", "outcome", "conclusion", "status", "exit_code", "verdict", "reason")
STILL = {
    "MLflow": "MLflow still shows the original",
    "table": "the table still shows the original",
    "again": "run again it is the original",
}
NAMED = 3  # edits that a sentence names
LONG = 1000  # characters of an edited text that is shown whole

Row = Mapping[str, Any]


def is_edit(row: Row) -> bool:
    """Whether it is a value of `result.json` that is not the one that was sealed."""
    return str(row.get("found")).endswith(SEALED) and str(row["what"]).startswith(RESULT)


def claim(row: Row) -> str:
    return str(row["what"]).removeprefix(RESULT)


def original(edit: Row, rows: Sequence[Row]) -> tuple[Any, str] | None:
    """The value that was sealed, and where it stands still: `MLflow`, the sweep's `table` or `again`. It is
    one whose digest is the sealed one; None where no row has it."""
    known = DIGEST.search(str(edit.get("explanation")))
    if not known:
        return None
    for row in rows:
        what = str(row["what"])
        value = _value(row["recorded"]) if what.startswith(CELLS) else row.get("found")
        if row is edit or row.get("point") != edit.get("point"):
            continue
        ways = [value]
        if isinstance(value, float) and value.is_integer():
            ways.append(int(value))  # a server keeps every number as a float
        for one in ways:
            if digest_document(one) == known[1]:
                places = {MLFLOW: "MLflow", CELLS: "table"}
                return one, next((p for key, p in places.items() if what.startswith(key)), "again")
    return None


class Parts(NamedTuple):
    """The rows of an audit, each in one of four: values of a `result.json` that were edited, figures that were edited in a
    sweep's table alone, what says no more than these do, and all else."""

    edits: list[Row]
    tables: list[Row]
    following: list[Row]
    rest: list[Row]


def parts(rows: Sequence[Row]) -> Parts:
    """Every row in its part, so that their counts add up to that of the table; of edits a figure before the words that
    tell of it."""
    edits = sorted(filter(is_edit, rows), key=lambda row: claim(row) in WORDS)
    made = Parts(edits, [], [], [])
    broken = {row["what"] for row in rows if row.get("found") == TABLE}
    others = [row for row in rows if not is_edit(row)]
    for row in others:
        file, _, column = str(row["what"]).partition(": ")
        alone = column and file in broken and row.get("point") is not None
        if alone and not follows(row, made.edits):
            made.tables.append(row)
    edited = {str(row["what"]).partition(": ")[0] for row in made.tables}
    files = {str(row["what"]) for row in rows if row.get("found") == FILE}
    for row in others:
        if not any(row is one for one in made.tables):
            file = str(row["what"]).removeprefix(f"{MLFLOW}artifact ")
            copied = file in files and file != row["what"]  # MLflow's copy of it
            known = file in edited or copied or follows(row, made.edits)
            (made.following if known else made.rest).append(row)
    return made


def follows(row: Row, edits: Sequence[Row]) -> bool:
    """Whether it says no more than one of these edits does: MLflow or the sweep's table has the value that was sealed,
    MLflow's copy of `result.json` is that of before, and what is shown of the verdict is what that was."""
    what = str(row["what"])
    if row.get("point") is None and edits and edits[0].get("point") is not None:
        return _of_sweep(what, edits)
    mine = [edit for edit in edits if edit.get("point") == row.get("point")]
    if any(claim(edit) == what for edit in mine):
        return True  # the second run says otherwise, too
    spoken = any(claim(edit) in SPOKEN for edit in mine)
    if what.startswith(CELLS) and mine:
        column = what.removeprefix(CELLS)
        derived = spoken and column in ("outcome", "exit_code")
        counted = any(column == f"{claim(edit).rpartition('.')[2]}_from_1" for edit in mine)
        return derived or counted or any(original(edit, [edit, row]) for edit in mine)
    if not what.startswith(MLFLOW) or not mine:
        return False
    key = what.removeprefix(MLFLOW)
    if key == "artifact result.json":
        return True
    if spoken and key.rpartition(": ")[2] in SHOWN:
        return True
    return any(original(edit, [edit, row]) for edit in mine)


def _of_sweep(what: str, edits: Sequence[Row]) -> bool:
    """The same of a row about a whole sweep, whose conclusion is made of all figures, its counts of verdicts."""
    if what == f"{MLFLOW}conclusion":
        return True
    key = what.removeprefix(MLFLOW)
    verdict = any(claim(edit) == "verdict" for edit in edits)
    return what != key and verdict and (key in SHOWN or key.removeprefix("sweep/") in ORDER)


def _value(cell: Any) -> Any:
    """What a cell of a table of text holds."""
    try:
        return literal_eval(str(cell)) if cell else None
    except (ValueError, SyntaxError):
        return cell


def told(rows: Sequence[Row], show: Any) -> str:
    """What was edited, what follows from that, and how many differences there are beside. show: of a value, how it is
    written; empty where nothing was edited."""
    edits, tables, following, rest = parts(rows)
    said = []
    if edits:
        count = f"{_count([e['recorded'] for e in edits])} edited after the record was sealed"
        said.append(f"{count}: {_listed([_edit(edit, rows, show) for edit in edits])}")
    if tables:
        files = " and ".join(dict.fromkeys(str(row["what"]).partition(": ")[0] for row in tables))
        count = f"{_count([_value(row['recorded']) for row in tables])} edited in {files} alone"
        said.append(f"{count}: {_listed([_cell(row, show) for row in tables])}")
    if said and following:
        verb = "follows" if len(following) == 1 else "follow"
        said.append(f"{machine.many(len(following), 'more difference')} {verb} from that")
    if said and rest:
        said.append(f"and {machine.many(len(rest), 'more difference')}")
    return "; ".join(said)


def _count(values: Sequence[Any]) -> str:
    numbers = all(isinstance(value, int | float) for value in values)
    many = machine.many(len(values), "figure" if numbers else "value")
    return f"{many} {'was' if len(values) == 1 else 'were'}"


def _listed(named: Sequence[str]) -> str:
    more = len(named) - NAMED
    return ", ".join(named[:NAMED]) + f", and {more} more" * (more > 0)


def _cell(row: Row, show: Any) -> str:
    """A figure of a sweep's table beside that of its point."""
    column, (now, was) = str(row["what"]).partition(": ")[2], (_value(row[k]) for k in ("recorded", "found"))  # fmt: skip
    return f"{column} of point {names.folder(row['point'])} is {show(now)}, its point has {show(was)}"  # fmt: skip


def _edit(edit: Row, rows: Sequence[Row], show: Any) -> str:
    where = f" of point {names.folder(edit['point'])}" if edit.get("point") else ""
    if not (known := original(edit, rows)):
        now = f'"{said}"' if (said := whole(edit)) else show(edit["recorded"])
        return f"{claim(edit)}{where} is {now}, {edit['found']}"
    value, place = known
    was, is_now = value, edit["recorded"]
    if isinstance(was, str) and isinstance(is_now, str):
        was, is_now = _parted(was, is_now)
    still = STILL[place]
    return f"{claim(edit)}{where} {show(was)} -> {show(is_now)} ({still})"


def whole(edit: Row) -> str:
    """An edited sentence as it reads now, where nobody can say in which of its words it was another; empty of any
    other value, and of a text as long as a chapter."""
    now = edit["recorded"]
    return now if is_edit(edit) and isinstance(now, str) and " " in now and len(now) <= LONG else ""


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
