"""An audit's page and its last lines on the console."""

import json
import re
from pathlib import Path
from typing import Any

from harness import machine
from harness.report import closing
from harness.report.console import tabled
from harness.report.html import cell, link, page, section
from harness.report.names import plain
from harness.snapshot.elements import spoken
from harness.snapshot.result import counted, write_text

WIDTH = {"explanation": 2000}
SEALED = "value was sealed"  # of a claim that is not the one of its digest
COMPARED = ("recorded", "found")
SHARES = ("top1_agreement", "top5_overlap")  # of a noise floor: no difference of anything
REDRAWN = "its report, drawn again from its evidence; nothing was run"  # of an audit of an audit
FOUND = "None: every claim of the record was found again."
FOUND_PARTLY = "None in what was compared; what was not is named below, under what cannot be known."


def write(
    path: Path, document: dict[str, Any], result: dict[str, Any] | None = None, called: str = ""
) -> None:
    """Every difference with its explanation, then what changed in the environment, and what to type. result: the
    audit's own, which says when and with which command it was made. called: what it is of, by a name that tells it
    apart."""
    result = result or {}
    rows = explaining(document["differences"])
    columns = ["what", "recorded", "found", "explanation"]
    if any("point" in d for d in rows):
        columns.insert(0, "point")
    sections = [
        section(
            "Differences",
            text="" if rows else FOUND if not document.get("uncompared") else FOUND_PARTLY,
            columns=[plain(c) for c in columns],
            rows=[[_told(d, c) for c in columns] for d in rows],
        )
    ]
    alike: dict[str, list[str]] = {}  # points that share what changed
    for point, changed in document["environment"].items():
        alike.setdefault(json.dumps(changed), []).append(point)
    for shared, points in alike.items():
        changed = sorted(json.loads(shared), key=lambda c: not c["decisive"])
        sections.append(
            section(
                f"The environment: {'what' if changed else 'nothing'} changed since the recording",
                text=f"Compared: code, versions, machine, device and settings as the record has them, with those of "
                f"now; of {', '.join(points) if changed or len(alike) > 1 else machine.many(len(points), 'run')}.",
                columns=["what", "recorded", "now", "may change the last bits"],
                rows=[
                    [c["what"], short(c["recorded"]), short(c["found"]), c["decisive"]]
                    for c in changed
                ],
            )
        )
    sections += _again(path.parent, document.get("evidence", {}))
    if told := tracked(document):
        lines = "\n".join(notes(document))
        sections.append(
            section("What MLflow shows", text=f"Compared with the record: {told}.", pre=lines)
        )
    unknown = [*document.get("unknown", []), *([] if told else notes(document))]
    sections.append(section("What cannot be known", lines=unknown))
    sections += closing.sections(result, path.parent)
    same = document["verdict"] == "same"
    run, folder = Path(document["run"]), path.parent
    links = [
        *link("recorded run", run / "report.html", folder),
        *link("recorded sweep", run / "sweep.html", folder),
        *link("second run", folder / "again" / "run" / "report.html", folder),
        ("audit.json", "audit.json"),
    ]
    title = f"Audit of {closing.of_record(run, called or run.name or str(run))}"
    text = page(
        title,
        sections,
        document["verdict"],
        sentence(document),
        same,
        links,
        under=", ".join(filter(None, (str(run), closing.under(result)))),
    )
    write_text(path, text)


def _again(folder: Path, evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """A block for each run, its figures beside those of its second run, folded where there are several; one line
    of one block for all those of which every figure is the same."""
    many = len(evidence) > 1
    made: list[dict[str, Any]] = []
    alike: list[list[Any]] = []
    for point, told in evidence.items():
        said, figures = _beside(folder, told)
        if many and figures and all(row[2] in ("the same", "") for row in figures):
            alike.append([point, len(figures), cell(told["record"], kind="digest")])
            continue
        text = f"{_where(told['where'])} {said} Record {told['record']}"
        columns = ["what", "recorded", "again", "difference that its own noise explains"]
        made.append(
            section(f"Run again: {point}", text=text, columns=columns, rows=figures, fold=many)
        )
    if alike:
        places = dict.fromkeys(_where(evidence[point]["where"]) for point, *_ in alike)
        text = " ".join(["Every figure is the same to the last digit.", *places])
        title = f"Run again, the same: {machine.many(len(alike), 'run')}"
        columns = ["point", "figures", "record"]
        made.insert(0, section(title, text=text, columns=columns, rows=alike, fold=True))
    return made


def _beside(folder: Path, told: dict[str, Any]) -> tuple[str, list[list[Any]]]:
    """The figures of a record beside those of its second run, whose `result.json` lie in `folder`; and in a
    sentence how many of them are the same."""
    sides = []
    for side in ("recorded", "again"):
        named = (told.get(side) or {}).get("result.json") or {}
        path = folder / Path(str(named.get("file"))).name
        sides.append(json.loads(path.read_text("utf-8")) if path.is_file() else {})
    was, now = map(_figures, sides)
    floors = {**{f"metrics.{k}": abs(v) for k, v in told["noise_floor"].items() if v and k not in SHARES},
              **told["floors"]}  # fmt: skip
    every = list(dict.fromkeys([*was, *now, *floors]))
    rows = [[plain(w), *_pair(was.get(w), now.get(w)), floors.get(w, "")] for w in every]
    alike = sum(was.get(what) == now.get(what) for what in was)
    count = f"{alike} of {len(was)}" if alike < len(was) else f"all {len(was)}"
    return (f"Of its figures {count} are the same to the last digit." if was else ""), rows


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    """What came out, by its name; nothing of a run that came to no result."""
    made = {key: result[key] for key in ("verdict",) if result.get(key)}
    for block in ("metrics", "oracle", "size"):
        for key, value in (result.get(block) or {}).items():
            if value is not None:
                made[f"{block}.{key}"] = counted(key, value)
    return made


def _pair(recorded: Any, again: Any) -> tuple[Any, Any]:
    """Two figures: to all of their digits where these are needed to tell them apart."""
    if recorded == again:
        return recorded, "" if recorded is None else "the same"
    recorded, again = (v if isinstance(v, str) else json.dumps(v) for v in (recorded, again))
    return recorded, again


def reason(document: dict[str, Any]) -> str:
    """What came out, in a line; of what was left out it does not say that it is the same."""
    count, left_out = len(document["differences"]), document.get("uncompared")
    if count:
        return _differing(explaining(document["differences"]))
    if document["compared"] == REDRAWN:
        return "the audit's report says what its own evidence says; nothing was run again"
    if not left_out:
        return f"every figure and token is reproduced, {document['compared']}"
    said = f"what was compared is reproduced, {document['compared']}"
    return f"{said}; not compared: {', '.join(left_out)}"


def _differing(rows: list[dict[str, Any]]) -> str:
    """What differs: the first in full, how many others."""
    first, more = rows[0], len(rows) - 1
    where = f" in {first['point']}" if first.get("point") else ""
    if str(first.get("found")).endswith(SEALED):
        file, _, claim = str(first["what"]).rpartition(": ")
        stands = f"{_told(first, 'recorded', 60)} stands in {file or 'the record'}"
        told = f"{spoken(claim)} was edited{where}: {stands}, {first['found']}"
        again = [d for d in rows if d["what"] == claim and d.get("point") == first.get("point")]
        told += "".join(f" (run again it is {_told(d, 'found', 60)})" for d in again[:1])
        return f"{told}; and {machine.many(more, 'more difference')}" if more else told
    told = f"{_told(first, 'what', 80)}{where}: recorded {_told(first, 'recorded', 60)}, found {_told(first, 'found', 60)}"
    return f"{told}; and {machine.many(more, 'more difference')}" if more else told


def sentence(document: dict[str, Any]) -> str:
    """The same for a person, with how many runs that is about."""
    said, runs = reason(document), machine.many(document.get("points", 1), "run")
    if document["differences"]:
        return f"{runs}: {said}. Compared: {document['compared']}."
    said = re.sub(r"^(every figure and token|what was compared) is", rf"\1 of {runs} is", said)
    return f"{said[0].upper()}{said[1:]}."


def tracked(document: dict[str, Any]) -> str:
    """What of MLflow was compared with the record, in a line; nothing where it has no run of that."""
    seen = document.get("tracked") or {}
    if not seen.get("runs"):
        return ""
    said = f"what MLflow says of {machine.many(seen['runs'], 'run')}"
    return said + f", its copies of {machine.many(seen['copies'], 'file')}" * bool(seen["copies"])


def notes(document: dict[str, Any]) -> list[str]:
    """What is to be known of MLflow, and claims nothing."""
    return list((document.get("tracked") or {}).get("notes", []))


def explaining(differences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The differences, a run that did not come to its end before what it therefore did not leave."""
    points = list(dict.fromkeys(d.get("point") for d in differences))
    return sorted(differences, key=lambda d: (points.index(d.get("point")), d["what"] != "run"))


def _told(difference: dict[str, Any], column: str, width: int = 0) -> str:
    """One cell; a step is counted from 1, as on every page."""
    value = difference.get(column, "")
    value = "none" if value is None else value
    if column in COMPARED and isinstance(value, int):
        value = counted(str(difference["what"]).rpartition(".")[2], value)
    return spoken(short(value, width or WIDTH.get(column, 160)))


def _where(place: dict[str, Any]) -> str:
    if not place.get("platform"):
        return "It did not come to its end."
    return f"On {place['platform']}, {place.get('cpu')}, {place.get('threads')} threads."


def show(say: Any, document: dict[str, Any], folder: str) -> None:
    """The same, in the terminal."""
    rows = explaining(document["differences"])
    say.fact(document["verdict"].upper(), sentence(document))
    if rows:
        say.line()
        found = [[f"{d.get('point', '')} {_told(d, 'what')}".strip(), *(_told(d, c, 24) for c in COMPARED), _told(d, "explanation")] for d in rows[:40]]  # fmt: skip
        tabled(say, "Differences", ["what", "recorded", "found", "explanation"], found)
        say.line()
    decisive = {c["what"] for changed in document["environment"].values() for c in changed if c["decisive"]}  # fmt: skip
    if decisive:
        say.fact("changed since", ", ".join(sorted(decisive)))
    if left_out := document.get("uncompared"):
        other = any(c["what"] == "code" for rows in document["environment"].values() for c in rows)
        by = " (made by another version)" * other
        say.fact("not compared", f"{', '.join(left_out)}{by}")
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
