"""An audit's page and its last lines on the console: the differences, what changed in the environment, what was not compared."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness import foreign, machine
from harness.present.messages import coded
from harness.report import footer
from harness.report.audit import evidence
from harness.report.html import cell, link, page, section
from harness.report.terminal.console import tabled
from harness.results.run import FACTS, values
from harness.snapshot.result import write_text

COLUMNS = ("what", "recorded", "found", "explanation")
SHOWN = 40  # differences on the console
NEVER = "Never compared: times, the command that was typed, places, sentences and pages; in MLflow names, tags and descriptions."
ORIGIN = (
    "Where, when and by whom the record was first made: a signature says only whose key it was."
)


def summary(document: dict[str, Any]) -> str:
    """What came out, in a line."""
    rows, count = document["differences"], machine.many(document["points"], "run")
    if not rows:
        return f"every fact of {count} is the same: compared {document['compared']}"
    first, more = rows[0], len(rows) - 1
    where = f" of point {first['point']}" if first.get("point") else ""
    line = f"{first['what']}{where}: recorded {_short(first['recorded'], 60)}, found {_short(first['found'], 60)}"
    return f"{line}; {machine.many(more, 'more difference')}" if more else line


def sentence(document: dict[str, Any]) -> str:
    text = summary(document)
    if coded():
        return f"{document['verdict']} {text}"
    if document["differences"]:
        return f"{text}. Compared: {document['compared']}."
    return f"{text[0].upper()}{text[1:]}."


def show(say: Any, document: dict[str, Any], folder: str) -> None:
    """In the terminal."""
    rows = document["differences"]
    say.fact(document["verdict"].upper(), sentence(document))
    if rows:
        lines = [
            [f"{row.get('point', '')} {row['what']}".strip(), *(_short(row.get(c), 40) for c in COLUMNS[1:3]),
             row["explanation"]]
            for row in rows[:SHOWN]
        ]  # fmt: skip
        say.line()
        tabled(say, "Differences", list(COLUMNS), lines)
        say.line()
    if changed := sorted(
        {c["what"] for rows in document["environment"].values() for c in rows if c["decisive"]}
    ):
        say.fact("changed since", ", ".join(changed))
    for what, why in document["uncompared"].items():
        say.fact("not compared", f"{what} ({why})")
    if runs := document["tracked"]["runs"]:
        say.fact("MLflow", f"the numbers of {machine.many(runs, 'run')} were compared too")
    if document["signed_by"]:
        say.line(f"signed by:    {', '.join(document['signed_by'])}")
    say.line(f"audit:        {folder}/audit.json")
    say.line(f"report:       {folder}/report.html")


def write(path: Path, document: dict[str, Any], result: dict[str, Any]) -> None:
    rows, folder, run = document["differences"], path.parent, Path(document["run"])
    columns = ["point"] * any("point" in row for row in rows) + list(COLUMNS)
    sections = [
        section(
            "Differences",
            text="What the record says, and what this audit found." if rows else "None.",
            columns=columns,
            rows=[[_short(row.get(column, ""), 400) for column in columns] for row in rows],
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
                text=f"Of {', '.join(points)}.",
                columns=["what", "recorded", "now", "may change the last bits"],
                rows=[
                    [c["what"], _short(c["recorded"]), _short(c["found"]), c["decisive"]]
                    for c in changed
                ],
            )
        )
    sections += [
        _facts(folder, point, len(document["evidence"]) > 1) for point in document["evidence"]
    ]
    left = [f"{what}: {why}" for what, why in document["uncompared"].items()]
    sections.append(section("Not compared", lines=[NEVER, ORIGIN, *left]))
    sections += footer.sections(result, folder)
    links = [
        *link("recorded run", run / "report.html", folder),
        *link("recorded sweep", run / "sweep.html", folder),
        *link("second run", folder / "again" / "run" / "report.html", folder),
        ("audit.json", "audit.json"),
    ]
    good, under = (
        document["verdict"] == "same",
        ", ".join(filter(None, (str(run), footer.under(result)))),
    )
    text = page(
        f"Audit of {run.name}",
        sections,
        document["verdict"],
        sentence(document),
        good,
        links,
        under=under,
    )
    write_text(path, text)


def _facts(folder: Path, point: str, fold: bool) -> dict[str, Any]:
    """The facts of one run beside those of its second run."""
    places = [folder / evidence(point, side, "result.json") for side in ("recorded", "again")]
    was, now = (_values(foreign.read_json(p)) if p.is_file() else {} for p in places)
    rows: list[list[Any]] = []
    for key in dict.fromkeys([*was, *now]):
        known = FACTS[key]
        shown = (known.show(side.get(key)) for side in (was, now))
        rows.append([key.replace("_", " "), *shown, known.compare])
    rows.append(["all of it", *(cell("result.json", quote(p.name)) for p in places), ""])
    heads = ["fact", "recorded", "again", "compared"]
    return section(f"Run again: {point}", columns=heads, rows=rows, fold=fold)


def _values(result: Any) -> dict[str, Any]:
    try:
        return {
            k: v for k, v in values(result).items() if k in FACTS and not isinstance(v, dict | list)
        }
    except AttributeError:  # an edited record holds anything
        return {}


def _short(value: Any, width: int = 160) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= width else f"{text[: width - 3]}..."
