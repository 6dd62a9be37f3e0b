"""What a job that was told to end (Ctrl-C, `kill`) leaves behind, and the sentence that says so."""

import shutil
from pathlib import Path
from typing import Any

MANIFEST = (
    "manifest.json"  # its presence says that a snapshot is whole; nothing heavy is imported here
)


def stamp(cfg: Any) -> tuple[int, int] | None:
    """Tells one snapshot at `out=` from its successor; None where there is none."""
    try:
        found = (Path(cfg.out).expanduser() / MANIFEST).stat()
    except (OSError, TypeError, AttributeError):
        return None
    return found.st_ino, found.st_mtime_ns


def left_behind(
    cfg: Any, folder: Path, stage: str, before: tuple[int, int] | None, fresh: bool
) -> str:
    """The rest of a sentence that begins with `interrupted`. A run directory that holds nothing
    finished is removed, if it is this job's own (`fresh`).

    stage: what was going on. before: `stamp` of `out=` when the job began.
    """
    from harness.pipeline.finish import shown

    name = f"task={cfg.task.name}" if cfg else "the job"
    lines = [f" in {name}" + (f", at '{stage}'" if stage else "")]
    snapshots = sorted(
        (p.parent for p in folder.glob("**/" + MANIFEST)), key=lambda p: p.stat().st_mtime_ns
    )
    if cfg and cfg.out:
        lines.append(_about_out(cfg, before))
    if (folder / "record.json").is_file():
        lines.append(f"the result is complete in {shown(folder)}" + _pending(folder))
    elif snapshots:
        count = "the finished snapshot" if len(snapshots) == 1 else f"{len(snapshots)} finished snapshots, the last of them"  # fmt: skip
        lines.append(f"kept: {count} {shown(snapshots[-1])}")
    elif fresh:
        shutil.rmtree(folder, ignore_errors=True)
    if len(lines) == 1:
        lines.append("nothing was written")
    return "; ".join(lines) + "."


def _about_out(cfg: Any, before: tuple[int, int] | None) -> str:
    now = stamp(cfg)
    if now is None:
        return f"out={cfg.out} was not written"
    return f"kept: the {'old' if now == before else 'finished'} snapshot {cfg.out}"


def _pending(folder: Path) -> str:
    return ", its upload to MLflow is not" if (folder / "pending.json").exists() else ""
