"""`task=audit run=...`: verify a record, run it again in a fresh process, compare every figure.

The record is only read. Its configuration is data: it is checked against the typed schema, tracking
and outputs are redirected, and no class or file that it names is opened beyond what the same
command line could open.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import config as configs
from harness import machine, variants
from harness.config import Config, PluginsConfig
from harness.errors import HarnessError, InputProblem, Untrusted
from harness.pipeline.environment import environment
from harness.pipeline.finish import Outcome, finish, options, shown
from harness.present.messages import coded
from harness.report.audit import answered, clause, figures
from harness.report.terminal.bar import span
from harness.report.terminal.console import Say
from harness.results.reason import Code, code_of, reason
from harness.snapshot import record as records
from harness.snapshot import signature
from harness.snapshot.result import SCHEMA, write_json
from harness.task.audit import download, places, report, server, tracking, unfinished
from harness.task.audit.bounds import bounds
from harness.task.audit.difference import formed
from harness.task.audit.evidence import keeps_none, place_of, sealed, summary, verified
from harness.task.audit.finding import Finding
from harness.task.audit.replay import floors, reproduced, rerun, rounded
from harness.task.audit.source import deleted, read
from harness.task.audit.target import located
from harness.track import names, parent

UNRUN = "only the seal, and the record's figures with one another: not all of these hold, so nothing was run again"
UNRUN_TRACKED = (
    "only the seal, the record's figures with one another and what MLflow says of it: not all of these hold, so "
    "nothing was run again"
)
CELLS = {"prunes": "prune", "quantizers": "quantize", "caches": "cache"}  # lists of an evaluation
LONG = 10  # seconds that a person is told of
STAGE = re.compile(
    r" INFO harness: .*\(([\d.]+) s\)$", re.M
)  # of a run's log, what each stage took


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `run=`: a run directory, an MLflow run id or a sweep directory. Writes `audit.json`."""
    asked, run_id = located(cfg)
    target, seen = download.unfolded(asked, folder), server.Seen()
    if report.is_audit(target):
        return _checked(cfg, folder, say, target, seen)
    sweep = any((target / name).is_file() for name in ("multirun.yaml", "sweep.json"))
    points = unfinished.points(cfg, target, _points(target), seen.left) if sweep else [target]
    if not points:
        raise InputProblem(f"run={cfg.run}: there is no finished run in {target}.")

    auditable(points, cfg.plugins)
    places.check(points, target)
    by = {signed(point, cfg.trusted) for point in points} if cfg.trusted else set()
    if cfg.trusted and sweep:
        by.add(signed(target, cfg.trusted, "sweep.json"))
    say.stage(f"verify {machine.many(len(points), 'record')}")
    findings: list[Finding] = []
    for point in points:
        mine = None if sweep else run_id
        findings += _named(verified(point, cfg, mine, seen), point, sweep)
    if sweep:
        if unfinished.concluded(cfg, target, seen.left):
            findings += summary(target, points)
        findings += formed(server.sweep(cfg, target, points, run_id, seen))
    server.unseen(target, seen, cfg.track.name != "none")
    say.done(machine.many(len(findings), "difference"))
    if findings:  # a record that was edited is not executed
        return _conclude(cfg, folder, say, asked, points, findings, None, by, seen)

    say.stage(f"run again in a fresh process{recorded_in(points)}")
    again = rerun(cfg, points, folder, target)
    environments, evidence = {}, {}
    for point, fresh in again.items():
        evidence[point.name] = _kept(cfg, folder, point, fresh)
        differences, environments[point.name] = reproduced(point, fresh)
        was, now = (read(p / "result.json") for p in (point, fresh))
        evidence[point.name]["bounds"] = bounds(was, now, environments[point.name])
        findings += _named(differences, point, sweep)
    say.done(machine.many(len(again), "run"))
    if unequal := {p: f for p, f in again.items() if rounded(p, f, environments[p.name])}:
        say.stage("measure how far rounding goes")
        for point, (differences, allowed, ties) in floors(cfg, unequal, folder, target).items():
            findings += _named(differences, point, sweep)
            evidence[point.name]["floors"] = allowed
            evidence[point.name]["uncompared"] |= ties
        say.done(f"{machine.many(len(unequal), 'run')} in another precision")
    return _conclude(cfg, folder, say, asked, points, findings, environments, by, seen, evidence)


def _kept(cfg: Config, folder: Path, point: Path, fresh: Path) -> dict[str, Any]:
    """What the report keeps of a point; `floors` of its tensors come later, where bits may differ."""
    recorded, again = (read(p / "result.json") for p in (point, fresh))
    place = place_of(point, recorded)
    nothing = "stages" in recorded or keeps_none(recorded)
    return {
        **report.kept(folder, point, fresh),
        **figures.told(
            *(
                r | {answered.KEY: answered.lists(p.joinpath)}
                for p, r in ((point, recorded), (fresh, again))
            )
        ),
        "kept": place.is_dir() if place else None if nothing else False,
        "salted": sealed(place),
        "deleted": deleted(cfg, point),
        "uncompared": {},
        "noise_floor": again.get("noise_floor") or {},
        "floors": {},
    }


def _checked(cfg: Config, folder: Path, say: Say, target: Path, seen: server.Seen) -> Outcome:
    """An audit's own report: is it what the auditor left, and does it follow from its evidence?"""
    from harness.report.audit.page import REDRAWN

    say.stage(f"check the audit in {shown(target)}")
    by = {signed(target, cfg.trusted)} if cfg.trusted else set()
    result, record = (read(target / name) for name in ("result.json", records.NAME))
    findings = [
        *report.checked(target),
        *formed(server.point(cfg, target, result, record, seen)),
    ]
    server.unseen(target, seen, cfg.track.name != "none")
    say.done(machine.many(len(findings), "difference"))
    document = read(target / "audit.json")
    again: dict[str, Any] = {name: [] for name in document.get("environment") or {}}
    unknown = [*report.ALWAYS, report.CLAIMED]
    points = [target]
    return _conclude(
        cfg, folder, say, target, points, findings, again, by, seen, None, REDRAWN, unknown
    )


def recorded_in(points: list[Path]) -> str:
    """How long the stages of these runs took, as an aside, where that is long and their logs are there: the times of
    files are those of a copy, or of whoever touched them."""
    logs = [path for p in points if (path := p / "harness.log").is_file()]
    took = sum(float(s) for log in logs for s in STAGE.findall(log.read_text("utf-8", "replace")))
    return f" ({span(took)} when recorded)" if took >= LONG else ""


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
    cfg: Config,
    folder: Path,
    say: Say,
    target: Path,
    points: list[Path],
    findings: list[Finding],
    again: dict[str, Any] | None,
    by: set[str],
    seen: server.Seen,
    evidence: dict[str, Any] | None = None,
    compared: str | None = None,
    unknown: list[str] | None = None,
) -> Outcome:
    from harness.report.audit import page

    rows, environments = [d.row() for d in findings], again or {}
    rounded = any(c["decisive"] for changed in environments.values() for c in changed)
    sweep = target if points[0].parent == target else None
    document = {
        "verdict": "differs" if rows else "same",
        "run": shown(target),
        "called": tracking.called(points[0], sweep),
        "points": len(points),
        "compared": compared
        if compared
        else (UNRUN_TRACKED if seen.runs else UNRUN)
        if again is None
        else compared_in(list((evidence or {}).values()), rounded),
        "differences": rows,
        "environment": environments,
        "signed_by": sorted(by),
        "tracked": seen.document(),
        "uncompared": [*report.uncompared(evidence or {}), *seen.left],
        "evidence": evidence or {},
        "unknown": (
            unknown
            or report.unknown(
                evidence or {},
                environments,
                {n for n, e in (evidence or {}).items() if e["salted"]},
            )
        )
        + [f"not compared: {what}: {why}" for what, why in seen.left.items()],
    }
    write_json(folder / "audit.json", document)
    told = page.reason(document)
    verdict = "diverged" if rows else "equivalent" if rounded else "exact"
    original = parent.known(sweep) if sweep else None  # its own
    if original is None:
        original = read(points[0] / "result.json").get("mlflow") or {}
    result = {
        "schema": SCHEMA, "task": "audit", "verdict": verdict, "reason": reason(Code.SUMMARY, message=told),
        "conclusion": f"{verdict} {told}" if coded() else page.sentence(document),
        "required": "equivalent", "audit_of": original.get("run_id"),
        "audit": {"points": len(points), "differences": len(rows), "bitwise": document["compared"] == "bitwise",
                  "run_again": len(evidence or {}), "mlflow_runs": seen.runs, "mlflow_copies": seen.copies},
        "options": options(cfg), "folder": shown(folder), "mlflow": None,
        "environment": environment(cfg, "none", "none"),
    }  # fmt: skip

    def draw(path: Path, result: Any) -> None:
        page.write(path, document, result, names.within(str(document["run"])))

    return finish(cfg, folder, say, result, draw, lambda _: page.show(say, document, shown(folder)))


def compared_in(entries: list[dict[str, Any]], rounded: bool) -> str:
    """How the runs were compared. entries: what is kept of each; rounded: whether the bits may differ."""
    if entries and all(e.get("came") for e in entries):
        return "what each run that came to no end says of that"
    return clause.within(entries) if rounded else "bitwise"


def _named(findings: Iterable[Finding], point: Path, sweep: bool) -> list[Finding]:
    if not sweep:
        return list(findings)
    return [Finding(d.what, d.recorded, d.found, d.explanation, point.name) for d in findings]


def _points(sweep: Path) -> list[Path]:
    """The point folders of a sweep, those too whose result is gone."""
    folders = [p.parent for p in sweep.glob("*/.hydra")]
    return sorted(folders, key=lambda p: (len(p.name), p.name))
