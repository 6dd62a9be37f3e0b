"""The page of a job that came to no end: what failed, where, how to mend it, and how far it came."""

from pathlib import Path
from typing import Any

from harness.config import launched
from harness.report import closing, diagnosis
from harness.report.html import cell, link, page, section
from harness.report.run import links
from harness.snapshot.result import write_text

MEND = {  # by exit code
    1: "harness.log, in the folder of this page, has the details.",
    2: "Correct what the message names, then type the command below again.",
    3: "The snapshot is left as it was. The message names what does not fit and what lets it through.",
}
TABLES = {
    "Differences": ("differences", ["element", "field", "saved", "found"]),
    "Faults": ("faults", ["fault"]),
}


def write(path: Path, result: dict[str, Any]) -> None:
    """Write the page of a `result.json` whose verdict is `failed` or `refused`. Raises OSError."""
    stages, reason = result["stages"], str(result["reason"])
    last = f"After '{stages[-1]['stage']}'." if stages else "Before any work began."
    place = f"At '{result['stage']}'." if result["stage"] else last
    mend = result.get("remedy") or MEND.get(result["exit_code"], MEND[1])
    sections = [section("What failed", pre=reason), section("How to mend it", text=mend)]
    if command := launched.of_point(path.parent):
        sections.append(section("Run it again", pre=command))
    sections += diagnosis.sections(result.get("diagnosis"))
    for title, (key, columns) in TABLES.items():
        if told := result.get(key):
            rows = [[row[c] for c in columns] if isinstance(row, dict) else [row] for row in told]
            sections.append(section(title, columns=columns, rows=rows, fold=True))
    seconds = sum(row["s"] for row in stages)
    text = f"{place} {seconds:.1f} s had been spent." if seconds >= 0.05 else place
    rows = [[row["stage"], cell(f"{row['s']:.2f}", kind="n")] for row in stages]
    sections.insert(1, section("Where", text=text, columns=["stage", "seconds"], rows=rows))
    known = [
        pair
        for pair in links(path.parent, result)
        if result.get("options") or pair[0] != "record.json"
    ]
    known += link("harness.log", path.with_name("harness.log"), path.parent)
    title = (
        closing.title(result, path.parent)
        if result.get("options")
        else "A run that could not begin"
    )
    write_text(path, page(title, sections, result["verdict"], result["conclusion"], "bad", known,
                          under=closing.under(result, path.parent)))  # fmt: skip
