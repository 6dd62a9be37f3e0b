"""An audit as evidence: what was run again, where, within which floors, and what nobody can know.

`audit.json` holds it; both results lie beside it, so that a third person needs nothing else to check
the checker: `task=audit run=AUDIT trusted=[AUDITOR.pub]` verifies the seal and the signature and
draws the conclusions again.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import foreign
from harness.pipeline.evaluation.record import FILES, Evaluation
from harness.snapshot import record as records
from harness.snapshot.digest import digest_bytes
from harness.task.audit.bounds import LISTS, bounds
from harness.task.audit.difference import compare, formed, since, turns
from harness.task.audit.evaluation import differences
from harness.task.audit.evidence import edited
from harness.task.audit.finding import Finding

NAME = "audit.json"
KEPT = ("result.json", "chat.json", *FILES)

ALWAYS = (
    "where and when the record was first made, and by whom: a seal and a rerun do not say that, a "
    "signature says only whose key it was",
    "times, and the command line that was typed: no second run says them, and they are not compared",
)
ELSEWHERE = (
    "{points}: the environment is not the recorded one ({what}), so the bits may differ; figures are "
    "compared within what this audit measured, and an error smaller than that cannot be told from rounding"
)
UNKEPT = (
    "{points}: its snapshot was kept in memory, lies outside of the record (snapshot=DIR names it) or is gone, so recorded keys and values are compared by "
    "their digests alone, and elsewhere, where other bits are honest, not at all"
)
SEALED = "{points}: its snapshot is encrypted, so its id says nothing about its contents"
DELETED = (
    "{points}: its run in MLflow was deleted, by whom and why no store says; what that held was compared all "
    "the same"
)
UNSEALED = "{points}: no seal covers {what}, and the audit did not look at it"
CLAIMED = (
    "how the state of the record compares with that of the second run, number by number: the auditor's "
    "word, since snapshots are not part of the evidence"
)


def kept(folder: Path, point: Path, fresh: Path) -> dict[str, Any]:
    """Both results (a chat's turns, an evaluation's answers too) copied into the audit's own `folder`; what the audit says of
    this point."""
    entry: dict[str, Any] = {"record": _id(point), "signed": (point / records.SIGNATURE).is_file()}
    entry["unsealed"] = records.unsealed(point)
    for which, place in (("recorded", point), ("again", fresh)):
        entry[which] = {}
        for name in KEPT:
            if (place / name).is_file():
                target = folder / f"evidence-{point.name}-{which}-{name}"
                shutil.copyfile(place / name, target)
                digest = digest_bytes(target.read_bytes())
                entry[which][name] = {"file": target.name, "digest": digest}
    result = _read(fresh / "result.json")
    entry["where"] = result.get("environment") or {}
    entry["time_s"] = result.get("time_s") or {}
    return entry


def unknown(
    points: dict[str, dict[str, Any]], environments: dict[str, Any], salted: set[str]
) -> list[str]:
    """What the audit cannot say, in sentences. points: from `kept`."""
    said = list(ALWAYS)
    alike: dict[str, list[str]] = {}
    for name, changed in environments.items():
        if what := sorted(c["what"] for c in changed if c["decisive"]):
            alike.setdefault(", ".join(what), []).append(name)
    said += [ELSEWHERE.format(points=", ".join(n), what=what) for what, n in alike.items()]
    unkept = [n for n, p in points.items() if p.get("kept") is False]
    if unkept:
        said.append(UNKEPT.format(points=", ".join(unkept)))
    if erased := [n for n, p in points.items() if p.get("deleted")]:
        said.append(DELETED.format(points=", ".join(erased)))
    alike = {}
    for name, point in points.items():
        if bare := ", ".join(point.get("unsealed") or ()):
            alike.setdefault(bare, []).append(name)
    said += [UNSEALED.format(points=", ".join(n), what=what) for what, n in alike.items()]
    alike = {}
    for name, point in points.items():
        for what, detail in (point.get("uncompared") or {}).items():
            alike.setdefault(f"not compared: {what}: {detail}", []).append(name)
    said += [f"{', '.join(names)}: {text}" for text, names in alike.items()]
    if salted:
        said.append(SEALED.format(points=", ".join(sorted(salted))))
    return said


def uncompared(points: dict[str, dict[str, Any]]) -> list[str]:
    """What was not compared that another audit could, in a few words. points: from `kept`."""
    return list(dict.fromkeys(what for p in points.values() for what in p["uncompared"]))


def is_audit(folder: Path) -> bool:
    return (folder / NAME).is_file()


def checked(folder: Path) -> Iterator[Finding]:
    """What does not hold about the audit that left `folder`. Nothing is run.

    Its files against its seal; its verdict against its differences; each pair of results that it
    kept against what it says of them.
    """
    document, result = _read(folder / NAME), _read(folder / "result.json")
    for what, was, now in records.broken(folder):
        yield edited(what, was, now, result)
    rows = document.get("differences")
    if not isinstance(rows, list) or not isinstance(document.get("evidence"), dict):
        yield Finding(NAME, "an audit's report", "none", "it holds no differences and no evidence")
        return
    verdict = "differs" if rows else "same"
    if document.get("verdict") != verdict:
        yield Finding("verdict", document.get("verdict"), verdict, "not what its differences say")
    if (result.get("verdict") in ("exact", "equivalent")) != (verdict == "same"):
        why = "not the verdict of the report"
        yield Finding("result.json: verdict", result.get("verdict"), verdict, why)
    for name, entry in document["evidence"].items():
        yield from formed(_point(folder, str(name), entry, rows, document))


def _point(
    folder: Path, name: str, entry: Any, rows: list[Any], document: Any
) -> Iterator[Finding]:
    """The conclusions about one point, drawn again from the two results."""
    results: dict[tuple[str, str], Any] = {}
    for which in ("recorded", "again"):
        for file, row in (entry.get(which) or {}).items():
            place = folder / Path(str(row.get("file"))).name
            data = place.read_bytes() if place.is_file() and not place.is_symlink() else b""
            if digest_bytes(data) != row.get("digest"):
                why = "the evidence is not what the report was drawn from"
                yield Finding(f"{name}: {place.name}", row.get("digest"), digest_bytes(data), why)
                return
            if file.endswith(".json"):
                results[which, file] = foreign.parsed(data, foreign.Budget())
    one, two = (results.get((which, "result.json")) or {} for which in ("recorded", "again"))
    if not one or not two:
        yield Finding(f"{name}: evidence", "two results", "none", "nothing to draw it from")
        return
    changed = since(one, two)
    findings = [*formed(compare(one, two, changed, entry.get("salted") is True))]
    if one.get("task") == two.get("task") == "evaluate" and "stages" not in {**one, **two}:
        was, now = (_evaluation(folder, entry, which, results) for which in ("recorded", "again"))
        exact = not any(c["decisive"] for c in changed)
        findings += formed(differences(was, now, exact))
    findings += turns(*(results.get((which, "chat.json")) or [] for which in ("recorded", "again")))
    said = {r.get("what") for r in rows if r.get("point") in (None, name)}
    for finding in findings:
        if finding.what not in said:
            why = "the results that it kept differ here, and the report does not say so"
            yield Finding(f"{name}: {finding.what}", finding.recorded, finding.found, why)
    held = bounds(one, two, changed)
    older = {key: told for key, told in held.items() if key not in LISTS}  # before lists had theirs
    if "bounds" in entry and entry["bounds"] not in (held, older):
        why = "not what its two results are held to"
        yield Finding(f"{name}: bounds", "as reported", "others", why)
    if changed != (document.get("environment") or {}).get(name):
        why = "not what the two results say of where they were made"
        yield Finding(f"{name}: environment", "as reported", "other changes", why)


def _evaluation(folder: Path, entry: Any, which: str, results: Any) -> Evaluation:
    def place(file: str) -> Path:
        return folder / Path(str((entry[which].get(file) or {}).get("file"))).name

    return Evaluation.read(results[which, "result.json"], place)


def _id(point: Path) -> str | None:
    return _read(point / records.NAME).get("id")


def _read(path: Path) -> dict[str, Any]:
    try:
        return records.read(path)
    except (OSError, ValueError):
        return {}
