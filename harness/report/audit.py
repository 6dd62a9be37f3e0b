"""An audit's page and its last lines on the console."""

import json
import re
from pathlib import Path
from typing import Any

from harness import machine
from harness.report.console import tabled
from harness.report.html import link, page, section
from harness.report.names import plain
from harness.snapshot.elements import spoken
from harness.snapshot.result import STEPS, write_text

WIDTH = {"explanation": 2000}
FOUND = "None: every claim of the record was found again."
FOUND_PARTLY = "None in what was compared; what was not is named below, under what cannot be known."


def write(path: Path, document: dict[str, Any]) -> None:
    """Every difference with its explanation, then what changed in the environment."""
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
                "What changed since" if changed else "Nothing changed since",
                text=", ".join(points),
                columns=["what", "recorded", "now", "may change the last bits"],
                rows=[
                    [c["what"], short(c["recorded"]), short(c["found"]), c["decisive"]]
                    for c in changed
                ],
            )
        )
    for point, told in document.get("evidence", {}).items():
        floors = {**{f"metrics.{k}": v for k, v in told["noise_floor"].items() if v}, **told["floors"]}  # fmt: skip
        sections.append(
            section(
                f"Run again: {point}",
                text=f"{_where(told['where'])} Record {told['record']}",
                columns=["floor of", "largest difference explained"],
                rows=[[plain(what), value] for what, value in floors.items()],
                fold=len(document["evidence"]) > 1,
            )
        )  # fmt: skip
    sections.append(section("What cannot be known", pre="\n".join(document.get("unknown", []))))
    same = document["verdict"] == "same"
    run, folder = Path(document["run"]), path.parent
    links = [
        *link("recorded run", run / "report.html", folder),
        *link("recorded sweep", run / "sweep.html", folder),
        *link("second run", folder / "again" / "run" / "report.html", folder),
        ("audit.json", "audit.json"),
    ]
    title = f"Audit of {run.name or run}"
    text = page(
        title, sections, document["verdict"], _sentence(document), same, links, under=str(run)
    )
    write_text(path, text)


def reason(document: dict[str, Any]) -> str:
    """What came out, in a line; of what was left out it does not say that it is the same."""
    count, left_out = len(document["differences"]), document.get("uncompared")
    if count:
        return machine.many(count, "difference")
    if not left_out:
        return f"every figure and token is reproduced, {document['compared']}"
    said = f"what was compared is reproduced, {document['compared']}"
    return f"{said}; not compared: {', '.join(left_out)}"


def _sentence(document: dict[str, Any]) -> str:
    said = reason(document)
    compared = f", compared {document['compared']}" if document["differences"] else ""
    return f"{said[0].upper()}{said[1:]}{compared}."


def explaining(differences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The differences, a run that did not come to its end before what it therefore did not leave."""
    points = list(dict.fromkeys(d.get("point") for d in differences))
    return sorted(differences, key=lambda d: (points.index(d.get("point")), d["what"] != "run"))


def _told(difference: dict[str, Any], column: str) -> str:
    """One cell; what the record counts from 0 says so."""
    said = spoken(short(difference.get(column, ""), WIDTH.get(column, 160)))
    return said + " (from 0)" * (column == "what" and said.endswith(STEPS))


def _where(place: dict[str, Any]) -> str:
    if not place.get("platform"):
        return "It did not come to its end."
    return f"On {place['platform']}, {place.get('cpu')}, {place.get('threads')} threads."


def show(say: Any, document: dict[str, Any], folder: str) -> None:
    """The same, in the terminal."""
    rows = explaining(document["differences"])
    if rows:
        found = [[f"{d.get('point', '')} {_told(d, 'what')}".strip(), short(d["recorded"], 24), short(d["found"], 24), short(d["explanation"], 2000)] for d in rows[:40]]  # fmt: skip
        tabled(say, "Differences", ["what", "recorded", "found", "explanation"], found)
        say.line()
    decisive = {c["what"] for changed in document["environment"].values() for c in changed if c["decisive"]}  # fmt: skip
    if decisive:
        say.line(f"changed since: {', '.join(sorted(decisive))}")
    many = document["points"]
    say.line(f"compared:     {document['compared']}, {machine.many(many, 'run')}")
    if left_out := document.get("uncompared"):
        other = any(c["what"] == "code" for rows in document["environment"].values() for c in rows)
        by = " (made by another version)" * other
        say.line(f"not compared: {', '.join(left_out)}{by}")
    if document.get("signed_by"):
        say.line(f"signed by:    {', '.join(document['signed_by'])}")
    say.line(f"verdict:      {document['verdict'].upper()}")
    say.line(f"audit:        {folder}/audit.json")
    say.line(f"report:       {folder}/report.html")


def short(value: Any, width: int = 160) -> str:
    """One line of a value; digests by their first digits, `audit.json` has them whole."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1...", text)
    return text if len(text) <= width else text[: width - 3] + "..."
