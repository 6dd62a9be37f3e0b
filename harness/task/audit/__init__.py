"""`task=audit run=...`: verify a record, run it again in a fresh process, compare every figure.

The record is only read. Its configuration is data: it is checked against the typed schema, tracking
and outputs are redirected, and no class or file that it names is opened beyond what the same
command line could open.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harness import config as configs
from harness import machine
from harness.config import Config
from harness.errors import HarnessError, InputProblem, Untrusted, printable
from harness.pipeline.finish import Outcome, finish, options, shown
from harness.report.console import Say
from harness.snapshot import record as records
from harness.snapshot import signature
from harness.snapshot.result import SCHEMA, write_json
from harness.task.audit import derived, report
from harness.task.audit.evidence import keeps_none, place_of, read, sealed, summary, tags, verified
from harness.task.audit.finding import Finding
from harness.task.audit.replay import floors, left_out, reproduced, rerun, rounded

TASKS = ("experiment", "save", "resume", "prune", "chat", "loop", "evaluate")


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `run=`: a run directory, an MLflow run id or a sweep directory. Writes `audit.json`."""
    target, run_id = located(cfg)
    if report.is_audit(target):
        return _checked(cfg, folder, say, target)
    sweep = any((target / name).is_file() for name in ("multirun.yaml", "sweep.json"))
    points = _points(target) if sweep else [target]
    if not points:
        raise InputProblem(f"run={cfg.run}: there is no finished run in {target}.")

    auditable(points)
    by = {signed(point, cfg.trusted) for point in points} if cfg.trusted else set()
    if cfg.trusted and sweep:
        by.add(signed(target, cfg.trusted, "sweep.json"))
    say.stage(f"verify {machine.many(len(points), 'record')}")
    findings: list[Finding] = []
    for point in points:
        findings += _named(verified(point, cfg, run_id), point, sweep)
    if sweep:
        findings += [*summary(target, points), *derived.sweep_page(target, points)]
    say.done(machine.many(len(findings), "difference"))
    if findings:  # a record that was edited is not executed
        return _conclude(cfg, folder, say, target, points, findings, None, by)

    say.stage("run again in a fresh process")
    again = rerun(cfg, points, folder)
    environments, evidence = {}, {}
    for point, fresh in again.items():
        evidence[point.name] = _kept(folder, point, fresh)
        differences, environments[point.name] = reproduced(point, fresh)
        findings += _named(differences, point, sweep)
    say.done(machine.many(len(again), "run"))
    if unequal := {p: f for p, f in again.items() if rounded(p, f, environments[p.name])}:
        say.stage("measure how far rounding goes")
        for point, (differences, allowed, ties) in floors(cfg, unequal, folder).items():
            findings += _named(differences, point, sweep)
            evidence[point.name]["floors"] = allowed
            evidence[point.name]["uncompared"] |= ties
        say.done(f"{machine.many(len(unequal), 'run')} in another precision")
    return _conclude(cfg, folder, say, target, points, findings, environments, by, evidence)


def _kept(folder: Path, point: Path, fresh: Path) -> dict[str, Any]:
    """What the report keeps of a point; `floors` of its tensors come later, where bits may differ."""
    recorded, again = (read(p / "result.json") for p in (point, fresh))
    place = place_of(point, recorded)
    nothing = "stages" in recorded or keeps_none(recorded)
    return {
        **report.kept(folder, point, fresh),
        "kept": place.is_dir() if place else None if nothing else False,
        "salted": sealed(place),
        "drawn": derived.redrawable(point, recorded),
        "uncompared": left_out(point, recorded, again),
        "noise_floor": again.get("noise_floor") or {},
        "floors": {},
    }


def _checked(cfg: Config, folder: Path, say: Say, target: Path) -> Outcome:
    """An audit's own report: is it what the auditor left, and does it follow from its evidence?"""
    say.stage(f"check the audit in {shown(target)}")
    by = {signed(target, cfg.trusted)} if cfg.trusted else set()
    findings = list(report.checked(target))
    say.done(machine.many(len(findings), "difference"))
    document = read(target / "audit.json")
    compared = "its report, drawn again from its evidence; nothing was run"
    again: dict[str, Any] = {name: [] for name in document.get("environment") or {}}
    unknown = [*report.ALWAYS, report.CLAIMED]
    points = [target]
    return _conclude(cfg, folder, say, target, points, findings, again, by, None, compared, unknown)


def located(cfg: Config) -> tuple[Path, str | None]:
    """`(directory, MLflow run id or None)` of the record that `run=` names."""
    if not cfg.run:
        raise InputProblem("task=audit needs run=DIR (a run or a sweep) or run=ID (of MLflow).")
    path = Path(cfg.run).expanduser()
    if path.is_dir():
        if not any(
            (path / n).exists()
            for n in ("result.json", records.NAME, "multirun.yaml", "sweep.json", ".hydra")
        ):
            raise InputProblem(f"run={cfg.run} holds no record: neither result.json nor a sweep.")
        return path, None
    if not re.fullmatch("[0-9a-f]{32}", cfg.run):
        raise InputProblem(
            f"run={cfg.run}: no such directory, and not the id of an MLflow run.{_near(path)}"
        )
    known = tags(cfg, cfg.run)
    if not known.get("folder"):
        raise InputProblem(
            f"run={cfg.run}: {cfg.track.uri or f'the tracking store of {cfg.runs_dir}'} knows no such "
            "run. Another store is asked with track.uri=ADDRESS or runs_dir=DIR; a folder needs none."
        )
    path = Path(known["folder"])
    if not path.is_dir():
        raise InputProblem(f"run={cfg.run} was recorded in {path}, which is not there any more.")
    return path, None if known.get("kind") else cfg.run


def _near(path: Path) -> str:
    """The directory whose name is most like that of `path`, where it is missing, as the end of a message."""
    missing = next(p for p in [*reversed(path.parents), path] if not p.is_dir())
    with suppress(OSError):
        names = [p.name for p in missing.parent.iterdir() if p.is_dir()]
        if near := get_close_matches(missing.name, names, n=1):
            whole = missing.with_name(near[0]) / path.relative_to(missing)
            there = whole if whole.is_dir() else missing.with_name(near[0])
            return f" Did you mean {printable(str(there))}?"
    return ""


def auditable(points: list[Path]) -> None:
    """Raise InputProblem when a point's task writes tables that are measured anew, most of times. What
    counts is the configuration, since that is what would be run."""
    for point in points:
        try:
            task = configs.recorded(point / ".hydra" / "config.yaml").task.name
        except (HarnessError, OSError, ValueError):
            continue  # named by `verified`, and never run
        if task not in TASKS:
            raise InputProblem(
                f"{shown(point)} records task={task}, whose figures are measured anew each time; "
                f"an audit takes a run of {', '.join(TASKS)}."
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
    cfg: Config,
    folder: Path,
    say: Say,
    target: Path,
    points: list[Path],
    findings: list[Finding],
    again: dict[str, Any] | None,
    by: set[str],
    evidence: dict[str, Any] | None = None,
    compared: str | None = None,
    unknown: list[str] | None = None,
) -> Outcome:
    from harness.report import audit as page

    rows, environments = [d.row() for d in findings], again or {}
    rounded = any(c["decisive"] for changed in environments.values() for c in changed)
    document = {
        "verdict": "differs" if rows else "same",
        "run": shown(target),
        "points": len(points),
        "compared": compared
        if compared
        else "not run again: the record itself does not hold"
        if again is None
        else "within the noise floors of the second run"
        if rounded
        else "bitwise",
        "differences": rows,
        "environment": environments,
        "signed_by": sorted(by),
        "uncompared": report.uncompared(evidence or {}),
        "evidence": evidence or {},
        "unknown": unknown
        or report.unknown(
            evidence or {}, environments, {n for n, e in (evidence or {}).items() if e["salted"]}
        ),
    }
    write_json(folder / "audit.json", document)
    reason = page.reason(document)
    verdict = "diverged" if rows else "equivalent" if rounded else "exact"
    original = (read(points[0] / "result.json").get("mlflow") or {}).get("run_id")
    result = {
        "schema": SCHEMA, "task": "audit", "verdict": verdict, "reason": reason,
        "required": "equivalent", "audit_of": original,
        "audit": {"points": len(points), "differences": len(rows), "bitwise": not rounded},
        "options": options(cfg), "folder": shown(folder), "mlflow": None,
    }  # fmt: skip

    def draw(path: Path, _: Any) -> None:
        page.write(path, document)

    return finish(cfg, folder, say, result, draw, lambda _: page.show(say, document, shown(folder)))


def _named(findings: Iterable[Finding], point: Path, sweep: bool) -> list[Finding]:
    if not sweep:
        return list(findings)
    return [Finding(d.what, d.recorded, d.found, d.explanation, point.name) for d in findings]


def _points(sweep: Path) -> list[Path]:
    """The point folders of a sweep, those too whose result is gone."""
    folders = [p.parent for p in sweep.glob("*/.hydra")]
    return sorted(folders, key=lambda p: (len(p.name), p.name))
