"""The page of a job that came to no end: what failed, where, how to mend it, and how far it came."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.config import launched, literal
from harness.present import refusal
from harness.present.messages import worded
from harness.report import footer
from harness.report.html import cell, link, page, section
from harness.report.names import in_brief
from harness.report.run import diagnosis
from harness.report.run.page import links
from harness.snapshot.elements import called, spoken
from harness.snapshot.record import read
from harness.snapshot.result import write_text

MEND = {  # by exit code
    1: "harness.log, in the folder of this page, has the details.",
    2: "Correct what the message names in the command below, and run that.",
    3: "The snapshot is left as it was. The message names what does not fit and what lets it through.",
}
TABLES = {
    "Differences": ("differences", ["element", "field", "saved", "found"]),
    "Faults": ("faults", ["fault"]),
}


def write(path: Path, result: dict[str, Any]) -> None:
    """Write the page of a `result.json` whose verdict is `failed` or `refused`. Raises OSError."""
    near = path.parent
    stages = [{**row, "stage": nearby(row["stage"], near)} for row in result["stages"]]
    reason, at = (
        nearby(told, near) for told in (worded(result["reason"]), str(result["stage"] or ""))
    )
    last = f"After '{stages[-1]['stage']}'." if stages else "Before any work began."
    place = f"At '{at}'." if at else last
    mend = result.get("remedy") or MEND.get(result["exit_code"], MEND[1])
    whole, said = section("What failed", pre=reason), headline(result, near)
    parts = bool(refusal.sentences(result))  # the headline and what follows it say it in parts
    first = [whole] * (not parts and reason.strip().rstrip(".") not in said)
    sections = [*first, *diagnosis.sections(result.get("diagnosis"))]
    sections.append(section("How to mend it", text=mend))
    if command := launched.of_point(path.parent):
        audit = [literal.command(launched.audit(str(result.get("folder"))))]
        checks = audit * (result["verdict"] == "refused" and bool(result.get("options")))
        wrong = mend == MEND[2]  # as it stands it fails again
        title = "Its command, to correct" if wrong else "Run it again" + ", check it" * bool(checks)
        sections.append(section(title, pre="\n".join([command, *checks])))
    if parts:
        sections.append({**whole, "title": "What failed, the whole message", "fold": True})
    for title, (key, columns) in TABLES.items():
        if told := result.get(key):
            rows = [_row(row, columns) if isinstance(row, dict) else [row] for row in told]
            sections.append(section(title, columns=columns, rows=rows))
    seconds = sum(row["s"] for row in stages)
    text = f"{place} {seconds:.1f} s had been spent." if seconds >= 0.05 else place
    rows = [[row["stage"], cell(f"{row['s']:.2f}", kind="n")] for row in stages]
    sections.append(section("Where", text=text, columns=["stage", "seconds"], rows=rows))
    known_of = {**result, **measured(result)}
    sections += [s for s in footer.sections(known_of, near) if s["title"] == "Environment"]
    known = [
        pair
        for pair in links(path.parent, result)
        if result.get("options") or pair[0] != "record.json"
    ]
    known += link("harness.log", path.with_name("harness.log"), near)
    known += link("manifest of the snapshot", near / "snapshot" / "manifest.json", near)
    title = (
        footer.title(result, path.parent) if result.get("options") else "A run that could not begin"
    )
    write_text(path, page(title, sections, result["verdict"], said, "bad", known,
                          under=footer.under(known_of, near)))  # fmt: skip


def _row(row: dict[str, Any], columns: list[str]) -> list[Any]:
    """What differs, its element and its field called as everywhere else on the page."""
    said = {**row, "element": spoken(row["element"]), "field": called(row["element"], row["field"])}
    return [said[c] for c in columns]


def measured(result: dict[str, Any]) -> dict[str, Any]:
    """Model and environment of a job that came to no end, as far as it had come to know them."""
    known = result.get("known") or {}
    blocks = (known.get("environment") or {}) | (result.get("environment") or {})
    model = result.get("model") or known.get("model")
    return {"environment": blocks} | ({"model": model} if model else {})


def headline(result: dict[str, Any], folder: Path) -> str:
    """The first thing that does not fit; below it, in a line of its own, what that means. No path: that stands in
    what the job said. The recorded conclusion of what was not refused, or of which nothing of the kind is known.
    folder: of the run."""
    told = refusal.sentences(result)
    return "\n".join(told) if told else nearby(str(result["conclusion"]), folder)


def why(point: Path, row: dict[str, Any]) -> str:
    """Why a point of a sweep, whose row has its `reason`, came to no end: as the page of each begins, whole where it
    was refused; without paths."""
    with suppress(OSError, ValueError):
        if told := refusal.sentences(read(point / "result.json")):
            return "\n".join(told)
    mine = str(row.get("folder") or "")  # as it was called when it ran, which no two points share
    said = nearby(worded(row["reason"]), point)
    return in_brief(said.replace(f"{mine}/", ".../") if mine else said)


def nearby(text: str, folder: Path) -> str:
    """`text` with every path in the folder of a run, or else in the directory that it was started in, as it is called
    from there. folder: with the run's record, wherever it lies now."""
    for root in launched.places(folder):
        text = text.replace(f"{root}/", "")
    return text
