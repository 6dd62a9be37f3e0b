"""What a job leaves that did not come to its end: it failed, was refused, or was told to stop."""

import json
import shutil
import traceback
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import blame
from harness.config import Config, TrackConfig, composed
from harness.errors import HarnessError, RestoreRefused, SnapshotInvalid, disk_is_full

if TYPE_CHECKING:
    from harness.report.terminal.console import Say

MANIFEST = "manifest.json"  # says that a snapshot is whole; nothing heavy is imported for its name
ROWS = "bench.json"  # what a measurement leaves as it goes

Stamp = tuple[int, int]


def exit_code(problem: Exception) -> int:
    """An expected failure has its own; else 2 for what goes wrong in a variant from outside, 1 for a fault
    of ours."""
    return int(getattr(problem, "exit_code", 2 if blame.author(problem) else 1))


def record_failure(
    cfg: Config | None, folder: Path, verdict: str, problem: Exception, say: "Say", remedy: str = ""
) -> None:
    """`result.json` with the reason and `report.html` of it, sealed and tracked where the configuration was
    sound. What the disk does not take is told and no second failure, but by a point of a sweep, which a
    full disk ends. remedy: where the message has none."""
    from harness.pipeline.finish import shown
    from harness.present.refusal import in_words

    try:
        told = _record(cfg, folder, verdict, problem, say, remedy)
        if not say.quiet and (folder / "report.html").is_file():
            if cause := in_words(told)[0]:  # what the page says first, and the message does not
                say.problem(f"cause:  {cause}")
            say.problem(f"report: {shown(folder)}/report.html")
        if not say.quiet and (tracked := told.get("mlflow")):
            from harness.report.terminal import tracked as store

            for label, words in store.places(tracked):
                say.problem(f"{label}: {words}")
    except OSError as lost:
        if say.quiet and disk_is_full(lost):
            raise
        say.problem(f"No record of it could be written to {folder}: {lost.strerror or lost}.")


def _record(
    cfg: Config | None, folder: Path, verdict: str, problem: Exception, say: "Say", remedy: str
) -> dict[str, Any]:
    """What was written."""
    from harness.pipeline.environment import checkout, code, environment
    from harness.pipeline.finish import options, shown, write
    from harness.present.conclusion import conclusion
    from harness.present.refusal import sentences
    from harness.results.reason import Code, reason
    from harness.snapshot.result import SCHEMA, write_json

    if isinstance(problem, HarnessError):
        args = dict(problem.arguments())
        if "where" in args and shown(folder) in str(args["where"]):
            del args["where"]  # in the run's own folder
        why = reason(problem.reason_code, **args)
    else:
        why = reason(Code.UNEXPECTED, type=type(problem).__name__, message=str(problem))
    record = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": verdict,
        "reason": why,
        "exit_code": exit_code(problem),
        "folder": shown(folder),
        "stage": say.what,
        "stages": [{"stage": stage, "s": seconds} for stage, seconds in say.stages],
        **({"remedy": mend} if (mend := remedy or getattr(problem, "remedy", "")) else {}),
    }
    known = dict(getattr(problem, "known", None) or {})
    where = known.pop("environment", None)
    if known:
        record["known"] = known
    if where or (cfg is not None and verdict == "refused"):
        record["environment"] = where or environment(
            cfg, "none", "none"
        )  # before a model was loaded
    if isinstance(problem, RestoreRefused):
        record["differences"] = [d.row() for d in problem.differences]  # type: ignore[attr-defined]
        record["diagnosis"] = problem.diagnosis
    if isinstance(problem, SnapshotInvalid):
        from harness.compare.diagnosis import refusal

        diagnosis = refusal((), problem.faults)
        record |= {
            "faults": problem.faults,
            "diagnosis": diagnosis.document() if diagnosis else None,
        }
    first = sentences(record)[:1]  # as the page and the server say it, by the same cause
    record["conclusion"] = first[0] if first else conclusion(record)
    record = json.loads(json.dumps(record, default=str))
    if cfg is not None:
        record |= {
            "task": cfg.task.name,
            "options": options(cfg),
            "code": code(),
            "git": checkout(),
        }
        _draw(folder, record)
        write(cfg, folder, record)
        return record
    _draw(folder, record)
    write_json(folder / "result.json", record)
    if (folder.parent / "multirun.yaml").is_file():
        try:
            _record_composed(folder, record)
        except Exception:  # what was wrong in the configuration may be wrong here too; it is told
            with (folder / "harness.log").open("a") as log:
                log.write(traceback.format_exc())
    return record


def _draw(folder: Path, record: dict[str, Any]) -> None:
    """The page, or nothing where the disk does not take it: the record is worth more."""
    from harness.report import failure

    with suppress(OSError):
        failure.write(folder / "report.html", record)


def _record_composed(folder: Path, record: dict[str, Any]) -> None:
    """A point of a sweep whose configuration is no sound one: its record is sealed and tracked with what
    Hydra composed for it, so that it has its place in the table and on the server."""
    from harness import track
    from harness.pipeline.environment import checkout, code, packages
    from harness.pipeline.finish import GROUPS
    from harness.snapshot.record import seal
    from harness.snapshot.result import write_json

    tree = composed(folder / ".hydra" / "config.yaml")
    if tree is None:
        return
    settings = TrackConfig(**tree["track"])
    tree["track"] = asdict(settings)
    options = {group: tree[group]["name"] for group in GROUPS}
    record |= {"task": options["task"], "options": options, "code": code(), "git": checkout()}
    write_json(folder / "result.json", record)
    _draw(folder, record)  # again, now that it is known what was asked
    seal(folder, record, tree, packages())
    track.log(settings, tree["runs_dir"], folder, record, tree["name"])


def stamp(cfg: Config | None) -> Stamp | None:
    """Tells one snapshot at `out=` from its successor; None where there is none."""
    try:
        status = (Path(cfg.out).expanduser() / MANIFEST).stat()  # type: ignore[union-attr, arg-type]
    except (OSError, TypeError, AttributeError):
        return None
    return status.st_ino, status.st_mtime_ns


def remove(folder: Path) -> None:
    """Remove a job's own folder, and the two above it (`runs/audit`) where nothing else is in them."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # something is in there
        for above in (folder.parent, folder.parent.parent):
            if not Path.cwd().is_relative_to(above.absolute()):
                above.rmdir()


def left_behind(
    cfg: Config | None,
    folder: Path,
    stage: str,
    before: Stamp | None,
    fresh: bool,
    kept: str = "",
) -> str:
    """The rest of a sentence that begins with `interrupted`. A run directory that holds nothing
    finished is removed, if it is this job's own (`fresh`).

    stage: what was going on. before: `stamp` of `out=` when the job began. kept: what the job keeps outside of its
    folder.
    """
    from harness.pipeline.finish import shown

    name = f"task={cfg.task.name}" if cfg else "the job"
    lines = [f" in {name}" + (f", at '{stage}'" if stage else "")]
    if cfg and cfg.out:
        lines.append(_about_out(cfg, before))
    if (folder / "record.json").is_file():
        pending = (folder / "pending.json").exists()
        upload = ", its upload to MLflow is not" if pending else ""
        lines.append(f"the result is complete in {shown(folder)}{upload}")
    elif whole := finished(folder):
        lines.append(whole)
    elif fresh:
        remove(folder)
    if kept and not (folder / "record.json").is_file():
        lines.append(f"kept: {kept}")
    if len(lines) == 1:
        lines.append("nothing was written")
    return "; ".join(lines) + "."


def finished(folder: Path) -> str:
    """Which snapshots a job has finished in its folder, or rows of a measurement, as a part of a sentence; empty for none."""
    from harness import machine
    from harness.process import shown

    if (rows := folder / ROWS).is_file():
        return f"kept: what was measured by then, in {shown(rows)}"
    whole = sorted(folder.glob(f"**/{MANIFEST}"), key=lambda p: p.stat().st_mtime_ns)
    several = f"{machine.many(len(whole), 'finished snapshot')}, the last of them"
    return (
        f"kept: {several if whole[1:] else 'the finished snapshot'} {shown(whole[-1].parent)}"
        if whole
        else ""
    )


def _about_out(cfg: Config, before: Stamp | None) -> str:
    from harness.save.contents import turns

    now, pauses = stamp(cfg), turns(Path(str(cfg.out)).expanduser())
    if now is None and pauses:
        return f"kept: {len(pauses)} pauses of the chat in out={cfg.out}, the last of them {pauses[-1].name}"
    if now is None:
        return f"out={cfg.out} was not written"
    return f"kept: the {'old' if now == before else 'finished'} snapshot {cfg.out}"
