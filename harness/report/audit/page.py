"""An audit's page and its last lines on the console."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness import machine
from harness.present.messages import coded
from harness.report import footer, names
from harness.report.audit import clause, edits
from harness.report.audit import figures as audited
from harness.report.audit.figures import listed
from harness.report.html import cell, link, page, section
from harness.report.names import plain
from harness.report.terminal.console import number, tabled
from harness.snapshot.elements import spoken
from harness.snapshot.result import counted, write_text

WIDTH = {"explanation": 2000}
OTHER = "is not the one that was recorded"
COMPARED = ("recorded", "found")
HEADS = {"recorded": "in the record", "found": "found now", "again": "run again now"}  # of columns
SIDES = "Left what the record says, beside it what was sealed or what this audit found: in a file, in MLflow{}."
SHOWN = 4  # places in which MLflow disagrees, in a line
APART = 8  # characters of a cell that show how two texts differ
BOUNDS = "Where a figure is another one, its row names what it was held to."
FLOORS = "The same run in another precision, made by this audit, says how far rounding moves each of them."
REDRAWN = "its report, drawn again from its evidence; nothing was run"  # of an audit of an audit
UNPLACED = (
    "What may have changed since is not known, so its figures are held to what rounding explains."
)
FAILED = "Not compared of {}: what fails says neither where it ran nor any figure, and its second run failed too."
FOUND = "None: every claim of the record was found again."
GONE = "sweep.json: finished"  # a row, which says which points are gone
FOUND_PARTLY = "None in what was compared; what was not is named below, under what cannot be known."


def write(
    path: Path, document: dict[str, Any], result: dict[str, Any] | None = None, called: str = ""
) -> None:
    """Every difference with its explanation, then what changed in the environment, and what to type. result: the
    audit's own, which says when and with which command it was made. called: what it is of, by a name that tells it
    apart."""
    result = result or {}
    rows = explaining(document["differences"])
    following = edits.parts(rows).following
    columns = ["what", "recorded", "found", "explanation"]
    if any("point" in d for d in rows):
        columns.insert(0, "point")
    sections = [
        section(
            "Differences",
            text=SIDES.format(" or in the second run" * bool(document.get("evidence")))
            if rows
            else FOUND
            if not document.get("uncompared")
            else FOUND_PARTLY,
            columns=[HEADS.get(c) or plain(c) for c in columns],
            rows=[[_cell(d, c, rows, following) for c in columns] for d in rows],
        )
    ]
    alike: dict[str, list[str]] = {}  # points that share what changed
    unknown: list[str] = []  # points of which it was not recorded, or not again
    failed = [p for p, told in document.get("evidence", {}).items() if told.get("came") == "failed"]
    for point, changed in document["environment"].items():
        nowhere = not document.get("evidence", {}).get(point, {"where": True})["where"]
        if nowhere and point in failed:
            continue
        if nowhere:
            unknown.append(point)
        else:
            alike.setdefault(json.dumps(changed), []).append(point)
    if unknown:
        of = ", ".join(unknown) if alike or len(unknown) > 1 else "1 run"
        sections.append(
            section(
                "The environment: not recorded", text=f"Nothing was compared of {of}. {UNPLACED}"
            )
        )
    if failed:
        runs = listed([names.folder(p) for p in failed]) if len(failed) > 1 or alike else "the run"
        sections.append(section("The environment: of what failed", text=FAILED.format(runs)))
    for shared, points in alike.items():
        changed = sorted(json.loads(shared), key=lambda c: not c["decisive"])
        sections.append(
            section(
                f"The environment: {'what' if changed else 'nothing'} changed since the recording",
                text=f"Compared: code, versions, machine, device and settings as the record has them, with those of "
                f"now; of {', '.join(points) if changed or len(alike) > 1 else machine.many(len(points), 'run')}.",
                columns=["what", HEADS["recorded"], "now", "may change the last bits"],
                rows=[
                    [c["what"], *(_told(c, side) for side in COMPARED), c["decisive"]]
                    for c in changed
                ],
            )
        )
    sections += _again(path.parent, document.get("evidence", {}))
    if told := tracked(document):
        said = "\n".join(notes(document))
        sections.append(
            section("What MLflow shows", text=f"{told[0].upper()}{told[1:]}.", pre=said)
        )
    lines = [*document.get("unknown", []), *([] if told else notes(document))]
    sections.append(section("What cannot be known", lines=lines))
    sections += footer.sections(result, path.parent)
    same = document["verdict"] == "same"
    run, folder = Path(document["run"]), path.parent
    links = [
        *link("recorded run", run / "report.html", folder),
        *link("recorded sweep", run / "sweep.html", folder),
        *link("second run", folder / "again" / "run" / "report.html", folder),
        ("audit.json", "audit.json"),
    ]
    title = f"Audit of {footer.of_record(run, called or run.name or str(run))}"
    text = page(
        title,
        sections,
        document["verdict"],
        "\n".join(filter(None, (sentence(document), audited.covered(folder, document)))),
        same,
        links,
        under=", ".join(filter(None, (str(run), footer.under(result)))),
    )
    write_text(path, text)


def _again(folder: Path, evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """A block for each run, its figures beside those of its second run, folded where there are several; one line
    of one block for all those of which every figure is the same."""
    many = len(evidence) > 1
    made: list[dict[str, Any]] = []
    alike: list[list[Any]] = []
    for point, told in evidence.items():
        held = told.get("bounds") or {}
        one, two = audited.results(folder, told)
        said, figures = audited.rows(one, two, held)
        copies = _copies(folder, told)
        if many and figures and all(_said(row[2]) in (audited.SAME, "") for row in figures):
            alike.append(
                [point, audited.tally(one, two)[1], *copies, cell(told["record"], kind="digest")]
            )
            continue
        figures.append(["both in full", *copies, *["", ""] * bool(held)])
        where = _where(told["where"])
        text = " ".join(
            filter(None, [where, said, BOUNDS * bool(held), f"Record {told['record']}"])
        )
        columns = ["what", HEADS["recorded"], HEADS["again"], *["held to", "why"] * bool(held)]
        made.append(
            section(f"Run again: {point}", text=text, columns=columns, rows=figures, fold=many)
        )
        if floors := [[plain(what), most] for what, most in told["floors"].items()]:
            title = f"How far apart rounding may put them: {point}"
            made.append(
                section(title, text=FLOORS, columns=["what", "at most"], rows=floors, fold=True)
            )
    if alike:
        ends: dict[str, list[str]] = {}  # where each ran, or that it came to no end
        for point, *_ in alike:
            ends.setdefault(_where(evidence[point]["where"]), []).append(names.folder(point))
        some = len(ends) > 1
        places = [f"{listed(points)}: {place}" if some else place for place, points in ends.items()]
        text = " ".join(["Every figure is the same to the last digit.", *places])
        title = f"Run again, the same: {machine.many(len(alike), 'run')}"
        columns = ["point", "figures", HEADS["recorded"], HEADS["again"], "record"]
        made.insert(0, section(title, text=text, columns=columns, rows=alike, fold=True))
    return made


def _copies(folder: Path, told: dict[str, Any]) -> list[Any]:
    """A link to the copy of each result that lies in the audit's folder."""
    places = [audited.copy(folder, told, side) for side in ("recorded", "again")]
    return [cell("result.json", quote(place.name)) if place else "" for place in places]


def _said(value: Any) -> Any:
    return value.get("text") if isinstance(value, dict) else value


def reason(document: dict[str, Any], runs: bool = False) -> str:
    """What came out, in a line; of what was left out it does not say that it is the same. runs: says of how many."""
    if document["differences"]:
        return _differing(explaining(document["differences"]))
    if document["compared"] == REDRAWN:
        return "the audit's report says what its own evidence says; nothing was run again"
    return clause.reproduced(document, runs)


def _differing(rows: list[dict[str, Any]]) -> str:
    """What differs: the points that are missing, then what was edited, each edit once; else the first in full, how many
    others."""
    gone = [row for row in rows if row["what"] == GONE]
    rest = [row for row in rows if row["what"] != GONE]
    missing = [f"{row['explanation']} ({_first(row)})" for row in gone]
    if edited := edits.told(rest, _value):
        return "; ".join([*missing, edited])
    told = missing or [_first(row) for row in [rows[0], *_inside(rows)]]
    more = len(rows) - len(told)
    return "; ".join([*told, *[f"and {machine.many(more, 'more difference')}"] * bool(more)])


def _inside(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of the rows that say what is wrong in a file, where the first of all says that it was edited."""
    file, point = f"{rows[0]['what']}: ", rows[0].get("point")
    inside = [r for r in rows[1:] if r["what"].startswith(file) and r.get("point") == point]
    return inside[:1] if rows[0]["found"] == edits.FILE else []


def _first(row: dict[str, Any]) -> str:
    where = f" of point {names.folder(row['point'])}" if row.get("point") else ""
    if row["found"] == edits.FILE:
        return f"{_told(row, 'what', 80)}{where} was edited after the record was sealed"
    return f"{_told(row, 'what', 80)}{where}: recorded {_told(row, 'recorded', 60)}, found {_told(row, 'found', 60)}"


def sentence(document: dict[str, Any]) -> str:
    """The same for a person, with how many runs that is about."""
    said = reason(document, runs=True)
    if document["differences"]:
        runs = machine.many(document.get("points", 1), "run")
        if more := document["differences"][1:]:
            runs += f", {machine.many(len(more) + 1, 'difference')}"
        return f"{runs}: {said}. Compared: {document['compared']}."
    return f"{said[0].upper()}{said[1:]}."


def tracked(document: dict[str, Any]) -> str:
    """What of MLflow was compared with the record and whether it agrees, in a line; nothing where it has no run of
    that."""
    seen = document.get("tracked") or {}
    if not seen.get("runs"):
        return ""
    said = f"what MLflow says of {machine.many(seen['runs'], 'run')}"
    copies = bool(seen["copies"])
    said += f" and its copies of {machine.many(seen['copies'], 'file')}" * copies
    if not (other := edits.disagreeing(document["differences"])):
        return f"{said} agree{'' if copies else 's'} with the record"
    named = ", ".join(other[:SHOWN]) + f" and {len(other) - SHOWN} more" * (len(other) > SHOWN)
    places = machine.many(len(other), "place")
    return f"{said} disagree{'' if copies else 's'} with the record in {places}: {named}"


def notes(document: dict[str, Any]) -> list[str]:
    """What is to be known of MLflow, and claims nothing."""
    said = list((document.get("tracked") or {}).get("notes", []))
    if any(map(edits.is_edit, document["differences"])):  # it is the record that was edited
        said = [note for note in said if OTHER not in note]
    return said


def explaining(differences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The differences, a run that did not come to its end before what it therefore did not leave."""
    points = list(dict.fromkeys(d.get("point") for d in differences))
    return sorted(differences, key=lambda d: (points.index(d.get("point")), d["what"] != "run"))


def _cell(
    difference: dict[str, Any], column: str, rows: list[dict[str, Any]], following: list[edits.Row]
) -> str:
    """One cell of the table; of an edited value what was sealed, where another row of `rows` has it, and of what such
    an edit explains (`following`) that it does."""
    known = edits.sealed(difference, rows, _value) if column == "found" else ""
    if column == "explanation" and any(difference is row for row in following):
        return f"{_told(difference, column)}: this follows from the edit"
    if column == "recorded" and not edits.original(difference, rows):
        known = edits.whole(difference)
    return known or _told(difference, column)


def _value(value: Any) -> str:
    """A value in a sentence."""
    return short(number(value) if isinstance(value, float) else value, 60)


def _told(difference: dict[str, Any], column: str, width: int = 0) -> str:
    """One cell; a step is counted from 1, as on every page."""
    value = difference.get(column, "")
    value = "none" if value is None else value
    was, now = (difference.get(c) for c in COMPARED)
    if column in COMPARED and isinstance(was, float) and isinstance(now, float):
        value = audited.apart(was, now)[COMPARED.index(column)]
    if column in COMPARED and isinstance(value, int):
        value = counted(str(difference["what"]).rpartition(".")[2], value)
    limit = width or WIDTH.get(column, 160)
    if column in COMPARED and isinstance(was, str) and isinstance(now, str):
        value = _from_there(value, was, now, limit)
    return spoken(short(value, limit))


def _from_there(value: str, was: str, now: str, limit: int) -> str:
    """One of two texts, from the word on in which they first differ where that would be cut off."""
    shared = edits.shared(was, now)
    if shared < limit - APART or " " not in was[:shared]:
        return value
    return f"...{value[was.rfind(' ', 0, shared) + 1 :]}"


def _where(place: dict[str, Any]) -> str:
    if not place.get("platform"):
        return "It did not come to its end."
    return f"On {place['platform']}, {place.get('cpu')}, {machine.many(place.get('threads') or 0, 'thread')}."


def show(say: Any, document: dict[str, Any], folder: str) -> None:
    """The same, in the terminal."""
    rows = explaining(document["differences"])
    told = reason(document) if coded() else sentence(document)
    say.fact(document["verdict"].upper(), told)
    if rows:
        say.line()
        found = [
            [f"{names.folder(d['point']) if 'point' in d else ''} {_told(d, 'what')}".strip(), _told(d, "recorded", 24),
             edits.sealed(d, rows, _value) or _told(d, "found", 24), _told(d, "explanation")]
            for d in rows[:40]
        ]  # fmt: skip
        tabled(say, "Differences", ["what", "recorded", "found", "explanation"], found)
        say.line()
    decisive = {c["what"] for changed in document["environment"].values() for c in changed if c["decisive"]}  # fmt: skip
    if decisive:
        say.fact("changed since", ", ".join(sorted(decisive)))
    if left_out := document.get("uncompared"):
        say.fact("not compared", ", ".join(left_out))
    if told := tracked(document):
        say.fact("compared too", told)
    for note in notes(document):
        say.fact("noted", note)
    if document.get("signed_by"):
        say.line(f"signed by:    {', '.join(document['signed_by'])}")
    say.line(f"audit:        {folder}/audit.json")
    say.line(f"report:       {folder}/report.html")


def short(value: Any, width: int = 160) -> str:
    """One line of a value; digests by their first digits, `audit.json` has them whole."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1...", text)
    return text if len(text) <= width else text[: width - 3] + "..."
