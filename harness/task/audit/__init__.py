"""`task=audit run=...`: verify a record, run it again in a fresh process, compare every figure.

The record is only read. Its configuration is data: it is checked against the typed schema, tracking
and outputs are redirected, and no class or file that it names is opened beyond what the same
command line could open.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import config as configs
from harness.errors import HarnessError, InputProblem, Untrusted
from harness.pipeline.finish import Outcome, finish, options, shown
from harness.save import store
from harness.snapshot import record as records
from harness.snapshot import signature
from harness.snapshot.result import SCHEMA, write_json
from harness.task.audit import report, rounding
from harness.task.audit.difference import Difference, changes, compare, formed, turns
from harness.task.audit.evidence import place_of, read, sealed, summary, tags, verified

LIMIT = 3600  # seconds that a recorded run may take again
TASKS = ("experiment", "save", "resume", "prune", "chat", "loop")


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
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
    say.stage(f"verify {len(points)} record{'s' * (len(points) > 1)}")
    differences: list[Difference] = []
    for point in points:
        differences += _named(verified(point, cfg, run_id), point, sweep)
    if sweep:
        differences += summary(target, points)
    say.done(f"{len(differences)} differences")
    if differences:  # a record that was edited is not executed
        return _conclude(cfg, folder, say, target, points, differences, None, by)

    say.stage("run again in a fresh process")
    again = rerun(cfg, points, folder)
    environments, evidence = {}, {}
    for point, fresh in again.items():
        evidence[point.name] = _kept(folder, point, fresh)
        at_point, environments[point.name] = reproduced(point, fresh)
        differences += _named(at_point, point, sweep)
    say.done(f"{len(again)} runs")
    if unequal := {p: f for p, f in again.items() if rounded(p, f, environments[p.name])}:
        say.stage("measure how far rounding goes")
        for point, (at_point, allowed) in floors(cfg, unequal, folder).items():
            differences += _named(at_point, point, sweep)
            evidence[point.name]["floors"] = allowed
        say.done(f"{len(unequal)} runs in another precision")
    return _conclude(cfg, folder, say, target, points, differences, environments, by, evidence)


def _kept(folder: Path, point: Path, fresh: Path) -> dict[str, Any]:
    """What the report keeps of a point; `floors` of its tensors come later, where bits may differ."""
    recorded = read(point / "result.json")
    place = place_of(point, recorded)
    return {
        **report.kept(folder, point, fresh),
        "kept": place is not None and place.is_dir(),
        "salted": sealed(place),
        "noise_floor": read(fresh / "result.json").get("noise_floor") or {},
        "floors": {},
    }


def _checked(cfg: Any, folder: Path, say: Any, target: Path) -> Outcome:
    """An audit's own report: is it what the auditor left, and does it follow from its evidence?"""
    say.stage(f"check the audit in {shown(target)}")
    by = {signed(target, cfg.trusted)} if cfg.trusted else set()
    differences = list(report.checked(target))
    say.done(f"{len(differences)} differences")
    document = read(target / "audit.json")
    compared = "its report, drawn again from its evidence; nothing was run"
    environments: dict[str, Any] = {name: [] for name in document.get("environment") or {}}
    unknown = [*report.ALWAYS, report.CLAIMED]
    return _conclude(cfg, folder, say, target, [target], differences, environments, by, None, compared, unknown)  # fmt: skip


def located(cfg: Any) -> tuple[Path, str | None]:
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
        raise InputProblem(f"run={cfg.run}: no such directory, and not the id of an MLflow run.")
    known = tags(cfg, cfg.run)
    if not known.get("folder"):
        raise InputProblem(
            f"run={cfg.run}: the tracking store of {cfg.runs_dir} knows no such run."
        )
    path = Path(known["folder"])
    if not path.is_dir():
        raise InputProblem(f"run={cfg.run} was recorded in {path}, which is not there any more.")
    return path, None if known.get("kind") else cfg.run


def auditable(points: list[Path]) -> None:
    """Raise InputProblem when a point's task writes tables of measurements, not one thought. What
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


def rerun(cfg: Any, points: list[Path], folder: Path, name: str = "again") -> dict[Path, Path]:
    """Run the recorded configurations again in one fresh process: record -> new run folder, below
    `folder/name`. `precision` runs each in another precision than it was recorded in."""
    jobs, targets = [], {}
    for point in points:
        result = read(point / "result.json")
        threads = (result.get("environment") or {}).get("threads")
        usable = isinstance(threads, int) and 1 <= threads <= 4 * (os.cpu_count() or 1)
        targets[point] = folder / name / (point.name if len(points) > 1 else "run")
        jobs.append(
            {
                "config": str((point / ".hydra" / "config.yaml").absolute()),
                "folder": str(targets[point].absolute()),
                "threads": cfg.threads or (threads if usable else None),
                "device": cfg.device,
                "plugins": {"path": cfg.plugins.path, "trust": list(cfg.plugins.trust)},
                "decrypt": cfg.decrypt,
                "dtype": rounding.other_precision(
                    str((result.get("environment") or {}).get("dtype"))
                )
                if name == "precision"
                else None,
            }
        )
    write_json(folder / f"{name}.json", jobs)
    limit = LIMIT * len(points)
    try:
        process = subprocess.run(
            [sys.executable, "-m", "harness.cli.replay", str(folder / f"{name}.json")],
            env={**os.environ, "PYTHONPATH": _path()}, capture_output=True, text=True, timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputProblem(f"the second run was not done after {limit} s and was ended.") from None
    if process.returncode:
        raise InputProblem(f"the fresh process failed: {process.stderr.strip().splitlines()[-1:]}")
    return targets


def reproduced(point: Path, fresh: Path) -> tuple[list[Difference], list[dict[str, Any]]]:
    """The differences between a record and its second run, and what changed in the environment."""
    recorded, again = read(point / "result.json"), read(fresh / "result.json")
    if not isinstance(recorded.get("environment") or {}, dict):
        recorded = {**recorded, "environment": {}}  # named by what it lacks
    changed = changes(recorded.get("environment") or {}, again.get("environment") or {})
    if not recorded:
        return [], changed  # the missing result is already named
    if not again.get("environment"):
        changed = []  # the second run failed before it could say where it ran
    said = turns(*(read(p / "chat.json", list) for p in (point, fresh)))
    salted = sealed(place_of(point, recorded))
    return [*formed(compare(recorded, again, changed, salted)), *formed(said)], changed


def rounded(point: Path, fresh: Path, changed: list[dict[str, Any]]) -> bool:
    """Whether the second run was elsewhere and computed other bits than the record's snapshot holds."""
    if not any(c["decisive"] for c in changed):
        return False
    one, two = (read(p / "result.json") for p in (point, fresh))
    places = [place_of(p, r) for p, r in ((point, one), (fresh, two))]
    digests = [{e["name"]: e["digest"] for e in r.get("elements") or []} for r in (one, two)]
    return None not in places and places[0] != places[1] and digests[0] != digests[1]


def floors(
    cfg: Any, points: dict[Path, Path], folder: Path
) -> dict[Path, tuple[list[Difference], dict[str, float]]]:
    """Keys, values and logits of each record and its second run (`points`), number by number, within
    a floor that a third run in another precision measures."""
    third = rerun(cfg, list(points), folder, "precision")
    judged = {}
    for point, fresh in points.items():
        ours, again, other = (_state(p) for p in (point, fresh, third[point]))
        if ours is None or again is None:
            gone = Difference(
                "snapshot", "a snapshot", "none to compare", "it was not written again"
            )
            judged[point] = ([gone], {})
        else:
            judged[point] = rounding.compare(ours, again, other)
    return judged


def _state(run: Path) -> Any:
    """The state that a run kept; None where there is none that can be read."""
    place = place_of(run, read(run / "result.json"))
    try:
        return store.load(place)[0] if place else None
    except HarnessError:
        return None


def _conclude(cfg: Any, folder: Path, say: Any, target: Path, points: list[Path],
              differences: list[Difference], again: dict[str, Any] | None, by: set[str],
              evidence: dict[str, Any] | None = None, compared: str | None = None,
              unknown: list[str] | None = None) -> Outcome:  # fmt: skip
    from harness.report import audit as page

    rows, environments = [d.row() for d in differences], again or {}
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
        "evidence": evidence or {},
        "unknown": unknown
        or report.unknown(
            evidence or {}, environments, {n for n, e in (evidence or {}).items() if e["salted"]}
        ),
    }
    write_json(folder / "audit.json", document)
    count = f"{len(rows)} difference{'s' * (len(rows) != 1)}"
    reason = count if rows else f"every figure and token is reproduced, {document['compared']}"
    verdict = "diverged" if rows else "equivalent" if rounded else "exact"
    original = (read(points[0] / "result.json").get("mlflow") or {}).get("run_id")
    result = {
        "schema": SCHEMA, "task": "audit", "verdict": verdict, "reason": reason,
        "required": "equivalent", "audit_of": original,
        "audit": {"points": len(points), "differences": len(rows), "bitwise": not rounded},
        "options": options(cfg), "folder": shown(folder), "mlflow": None,
    }  # fmt: skip
    return finish(
        cfg, folder, say, result, lambda path, _: page.write(path, document),
        lambda _: page.show(say, document, shown(folder)),
    )  # fmt: skip


def _named(differences: Any, point: Path, sweep: bool) -> list[Difference]:
    if not sweep:
        return list(differences)
    return [Difference(d.what, d.recorded, d.found, d.explanation, point.name) for d in differences]


def _points(sweep: Path) -> list[Path]:
    """The point folders of a sweep, those too whose result is gone."""
    folders = [p.parent for p in sweep.glob("*/.hydra")]
    return sorted(folders, key=lambda p: (len(p.name), p.name))


def _path() -> str:
    """So that the fresh process runs this very package."""
    here = str(Path(configs.__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
