"""A record as a tracking server hands it out: all of its files, `.hydra` under the name `hydra`."""

import re
import shlex
import shutil
from pathlib import Path

from harness.errors import InputProblem, printable
from harness.pipeline.finish import shown
from harness.task.audit.source import read


def command(run_id: str, uri: str) -> str:
    """What fetches the files of a run into a folder, and audits that."""
    fetch = (
        f"MLFLOW_TRACKING_URI={shlex.quote(uri)} mlflow artifacts download -r {run_id} -d record"
    )
    return f"`{fetch}`, then audit run=record"


def unfolded(target: Path, folder: Path) -> Path:
    """`target`; of one that was downloaded a copy below the audit's `folder`, where every file has the name
    that it was sealed by. Raises InputProblem where its snapshot was too large for the server, or goes on from others
    that are not there: a chat's turns before its last."""
    if (target / ".hydra").exists() or not (target / "hydra").is_dir():
        return target
    if (target / "snapshot" / "kept_on_disk.json").is_file():
        raise InputProblem(
            f"{shown(target)} is not the whole record: its snapshot was over track.artifact_limit_mb, so the "
            "server has its manifest alone. Audit the folder that it was recorded in, which "
            "snapshot/kept_on_disk.json names."
        )
    chat = _chat(target)
    place = folder / "downloaded" / target.resolve().name
    shutil.copytree(target, place, symlinks=True)
    (place / "hydra").rename(place / ".hydra")
    if chat:  # of one turn, which lies in a folder of its own
        (place / "snapshot").rename(place / chat)
        (place / "snapshot").mkdir()
        (place / chat).rename(place / "snapshot" / chat)
    return place


def _chat(target: Path) -> str:
    """The folder of the only turn of a chat that was downloaded; empty of any other record, and where `out=` has it."""
    result = read(target / "result.json")
    if result.get("task") != "chat":
        return ""
    manifest = target / "snapshot" / "manifest.json"
    lineage = read(manifest).get("lineage") or []
    if beside := ", ".join(str(row.get("place")) for row in lineage):
        run_id = (result.get("mlflow") or {}).get("run_id")
        whole = f"run={run_id} finds it" if run_id else "audit that"
        told = (
            f"{shown(target)} is not the whole record: of a chat the server has the snapshot of the last turn, which "
            f"needs {beside} beside it. They lie where it was recorded, in {result.get('folder')} or at its out=: {whole}."
        )
        raise InputProblem(printable(told))
    last = Path(str((result.get("snapshot") or {}).get("path")))
    inside = last.parent.name == "snapshot" and re.fullmatch(r"turn-\d+", last.name)
    return last.name if inside and manifest.is_file() else ""
