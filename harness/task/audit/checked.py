"""An audit as evidence: both results lie beside its report, so that anybody can draw its conclusions again (`task=audit run=AUDIT
trusted=[AUDITOR.pub]`), and nothing is run."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.pipeline.evaluation.record import FILES
from harness.report.audit import evidence as copy_of
from harness.snapshot import record as records
from harness.snapshot.digest import digest_bytes
from harness.task.audit import replay
from harness.task.audit.difference import formed
from harness.task.audit.finding import Finding
from harness.task.audit.source import read

NAME = "audit.json"
KEPT = ("result.json", *replay.FILES.values(), *FILES)
REDRAWN = "its own evidence again; nothing was run"


def kept(folder: Path, point: Path, fresh: Path) -> dict[str, Any]:
    """What the record and its second run say, copied into the audit's own `folder`, by side and file."""
    entry: dict[str, Any] = {"record": read(point / records.NAME).get("id")}
    for side, place in (("recorded", point), ("again", fresh)):
        entry[side] = {}
        for name in KEPT:
            if (place / name).is_file():
                target = folder / copy_of(
                    point.name, side, name
                )  # beside the report: MLflow has it too
                shutil.copyfile(place / name, target)
                entry[side][name] = digest_bytes(target.read_bytes())
    return entry


def checked(folder: Path) -> Iterator[Finding]:
    """What does not hold about the audit that left `folder`: its seal, its verdict, its conclusions."""
    document, result = read(folder / NAME), read(folder / "result.json")
    for what, was, now in records.broken(folder):
        yield Finding(what, now, "another was sealed", f"edited after the audit; sealed: {was}")
    rows, evidence = document.get("differences"), document.get("evidence")
    if not isinstance(rows, list) or not isinstance(evidence, dict):
        yield Finding(NAME, "an audit's report", "none", "it holds no differences and no evidence")
        return
    verdict = "differs" if rows else "same"
    if document.get("verdict") != verdict:
        yield Finding("verdict", document.get("verdict"), verdict, "not what its differences say")
    if (result.get("verdict") in ("exact", "equivalent")) != (verdict == "same"):
        yield Finding(
            "result.json: verdict", result.get("verdict"), verdict, "not that of the report"
        )
    for name, entry in evidence.items():
        with TemporaryDirectory() as place:
            yield from formed(_point(folder, Path(place), name, entry, document))


def _point(folder: Path, place: Path, name: str, entry: Any, document: Any) -> Iterator[Finding]:
    """The conclusions about one point, drawn again in `place` from what was kept of it."""
    for side in ("recorded", "again"):
        (place / side).mkdir()
        for file, digest in entry[side].items():
            path = folder / copy_of(name, side, file)
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            if digest_bytes(data) != digest:
                found = digest_bytes(data)
                yield Finding(
                    f"{name}: {side} {file}", digest, found, "not what the report was drawn from"
                )
                return
            (place / side / KEPT[KEPT.index(file)]).write_bytes(data)
    findings, changed = replay.reproduced(place / "recorded", place / "again", entry.get("salted"))
    known = {row.get("what") for row in document["differences"] if row.get("point") in (None, name)}
    for finding in findings:
        if finding.what not in known:
            why = "its two results differ here, and the report does not say so"
            yield Finding(f"{name}: {finding.what}", finding.recorded, finding.found, why)
    if changed != document["environment"].get(name):
        why = "not what the two results say of where they were made"
        yield Finding(f"{name}: environment", "as reported", "other changes", why)
