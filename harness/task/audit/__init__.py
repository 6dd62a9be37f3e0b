"""`task=audit run=...`: verify a record, run it again in a fresh process, compare every fact.

The record is only read. Its configuration is data: it is checked against the typed schema, tracking
and outputs are redirected, and no class or file that it names is opened beyond what the same
command line could open.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import config as configs
from harness import machine, variants
from harness.config import Config, PluginsConfig
from harness.errors import HarnessError, InputProblem, Untrusted
from harness.pipeline.environment import environment
from harness.pipeline.finish import Outcome, finish, options, shown
from harness.report.terminal.console import Say
from harness.results.reason import Code, code_of, reason
from harness.snapshot import record as records
from harness.snapshot import signature
from harness.snapshot.result import SCHEMA, write_json
from harness.task.audit import checked, download, places, source, sweep
from harness.task.audit.evidence import place_of, sealed, verified
from harness.task.audit.finding import Finding
from harness.task.audit.replay import floors, reproduced, rerun, rounded
from harness.task.audit.source import read
from harness.task.audit.target import located

SEAL = "the seal and the record's own figures; they do not hold, so nothing was run again"
BITWISE, WITHIN = "bitwise", "within noise floors that this audit measured"
CELLS = {"prunes": "prune", "quantizers": "quantize", "caches": "cache"}  # lists of an evaluation


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `run=`: a run directory, an MLflow run id or a sweep directory. Writes `audit.json`."""
    asked, run_id = located(cfg)
    target = download.unfolded(asked, folder)
    if (target / checked.NAME).is_file():
        return _redrawn(cfg, folder, say, target)
    left: dict[str, str] = {}
    swept = sweep.is_sweep(target)
    points = sweep.points(target, left) if swept else [target]
    if not points:
        raise InputProblem(f"run={cfg.run}: there is no finished run in {target}.")
    auditable(points, cfg.plugins)
    places.check(points, target)
    by = {signed(point, cfg.trusted) for point in points} if cfg.trusted else set()
    if cfg.trusted and swept:
        by.add(signed(target, cfg.trusted, sweep.RECORD))

    say.stage(f"verify {machine.many(len(points), 'record')}")
    findings: list[Finding] = [*sweep.summary(target, points)] if swept else []
    for point in points:
        findings += _named(verified(point, cfg, None if swept else run_id), point, swept)
    say.done(machine.many(len(findings), "difference"))
    document: dict[str, Any] = {
        "verdict": "differs", "run": shown(target if swept else asked), "points": len(points), "compared": SEAL,
        "differences": [], "environment": {}, "signed_by": sorted(by),
        "tracked": {"runs": sum(len(source.tracked(cfg, point) or ()) for point in points)},
        "uncompared": left, "evidence": {},
    }  # fmt: skip
    if findings:  # a record that was edited is not executed
        return _conclude(cfg, folder, say, document, points, findings)

    say.stage("run again in a fresh process")
    again = rerun(cfg, points, folder, target)
    for point, fresh in again.items():
        differences, changed = reproduced(point, fresh)
        document["environment"][point.name] = changed
        entry = checked.kept(folder, point, fresh)
        entry["salted"] = sealed(place_of(point, read(point / "result.json")))
        document["evidence"][point.name] = entry
        findings += _named(differences, point, swept)
        if bare := records.unsealed(point):
            left[f"{point.name}: {', '.join(bare)}"] = "no seal covers it"
    say.done(machine.many(len(again), "run"))
    changes = document["environment"]
    if unequal := {p: f for p, f in again.items() if rounded(p, f, changes[p.name])}:
        say.stage("measure how far rounding goes")
        for point, (differences, ties) in floors(cfg, unequal, folder, target).items():
            findings += _named(differences, point, swept)
            left |= {f"{point.name}: {what}": why for what, why in ties.items()}
        say.done(f"{machine.many(len(unequal), 'run')} in another precision")
    elsewhere = any(c["decisive"] for changed in changes.values() for c in changed)
    document["compared"] = WITHIN if elsewhere else BITWISE
    return _conclude(cfg, folder, say, document, points, findings)


def _redrawn(cfg: Config, folder: Path, say: Say, target: Path) -> Outcome:
    """An audit's own report: is it what the auditor left, and does it follow from its evidence?"""
    say.stage(f"check the audit in {shown(target)}")
    by = {signed(target, cfg.trusted)} if cfg.trusted else set()
    findings = [*checked.checked(target), *source.differences(cfg, target)]
    say.done(machine.many(len(findings), "difference"))
    document = {
        "verdict": "differs", "run": shown(target), "points": 1, "compared": checked.REDRAWN, "differences": [],
        "environment": {}, "signed_by": sorted(by), "tracked": {"runs": len(source.tracked(cfg, target) or ())},
        "uncompared": {}, "evidence": {},
    }  # fmt: skip
    return _conclude(cfg, folder, say, document, [target], findings)


def auditable(points: list[Path], plugins: PluginsConfig | None = None) -> None:
    """Raise InputProblem when a point's task writes tables that are measured anew, most of times, and where an option is
    of its maker's own and not here. What counts is the configuration, since that is what would be run. plugins: what
    the auditor trusts."""
    for point in points:
        why = read(point / "result.json").get("reason")
        if code_of(why) == Code.CHAT_TYPED and not (point / records.NAME).exists():
            raise InputProblem(
                f"{shown(point)} is a chat that was typed: nothing declares its turns, so there is no record to audit. "
                "task=verify snapshot=DIR checks the bytes of any of its turns, task=resume snapshot=DIR judges it."
            )
        try:
            config = configs.recorded(read(point / records.NAME).get("config"), point, plugins)
        except (HarnessError, OSError, ValueError):
            continue  # named by `verified`, and never run
        if config.task.name not in records.AUDITED:
            raise InputProblem(
                f"{shown(point)} records task={config.task.name}, whose figures are measured anew each time; "
                f"an audit takes a run of {', '.join(records.AUDITED)}."
            )
        asked = [(group, getattr(config.task, key, ())) for key, group in CELLS.items()]
        for group, named in (*asked, ("cache", [config.cache.name])):
            if lacking := set(named) - set(variants.options(group)):
                raise InputProblem(
                    f"{shown(point)} has {group}={min(lacking)}, an option of its maker's own that is not here. "
                    "Say where it is: --config-dir DIR, the folder that was named then."
                )


def signed(point: Path, trusted: list[str], name: str = records.NAME) -> str:
    """The key among `trusted` that signed the record in `point` (`name`: its file). Raises Untrusted
    when none did."""
    try:
        data = (point / name).read_bytes()
    except OSError:
        raise Untrusted(f"{shown(point)} holds no sealed record, so nothing is signed.") from None
    place = point / f"{name}{signature.SUFFIX}"
    bundle = place.read_bytes() if place.is_file() and not place.is_symlink() else None
    return signature.check(data, bundle, trusted, f"the record in {shown(point)}")


def _conclude(
    cfg: Config, folder: Path, say: Say, document: dict[str, Any], points: list[Path], findings: list[Finding]
) -> Outcome:  # fmt: skip
    from harness.report.audit import page

    document["differences"] = [finding.row() for finding in findings]
    document["verdict"] = "differs" if findings else "same"
    write_json(folder / "audit.json", document)
    above = points[0].parent if sweep.is_sweep(points[0].parent) and len(points) > 1 else None
    of = (
        (read(above / "mlflow.json") if above else {})
        or read(points[0] / "result.json").get("mlflow")
        or {}
    )
    good = "equivalent" if document["compared"] == WITHIN else "exact"
    result = {
        "schema": SCHEMA, "task": "audit", "verdict": "diverged" if findings else good,
        "reason": reason(Code.SUMMARY, message=page.summary(document)), "conclusion": page.sentence(document),
        "required": "equivalent",
        "audit_of": of.get("run_id"),
        "audit": {"points": len(points), "differences": len(findings), "bitwise": document["compared"] == BITWISE,
                  "run_again": len(document["evidence"]), "mlflow_runs": document["tracked"]["runs"]},
        "options": options(cfg), "folder": shown(folder), "mlflow": None,
        "environment": environment(cfg, "none", "none"),
    }  # fmt: skip

    def draw(path: Path, result: Any) -> None:
        page.write(path, document, result)

    return finish(cfg, folder, say, result, draw, lambda _: page.show(say, document, shown(folder)))


def _named(findings: Iterable[Finding], point: Path, swept: bool) -> list[Finding]:
    if not swept:
        return list(findings)
    return [Finding(d.what, d.recorded, d.found, d.explanation, point.name) for d in findings]
