"""A record as a tracking server hands it out: all of its files, `.hydra` under the name `hydra`."""

import re
import shutil
from pathlib import Path

from harness.errors import InputProblem, printable
from harness.process import shown
from harness.task.audit.source import read


def unfolded(target: Path, folder: Path) -> Path:
    """`target`; of one that was downloaded a copy below the audit's `folder`, where every file has the name
    that it was sealed by. Raises InputProblem where its snapshot, or one that it goes on from, is not there."""
    if (target / ".hydra").exists() or not (target / "hydra").is_dir():
        return target
    result = read(target / "result.json")
    if (target / "snapshot" / "kept_on_disk.json").is_file():
        raise InputProblem(
            f"{shown(target)} is not the whole record: its snapshot was over track.artifact_limit_mb, so the server has "
            "its manifest alone. Audit the folder that it was recorded in, which snapshot/kept_on_disk.json names."
        )
    chat = result.get("task") == "chat"
    manifest = target / "snapshot" / "manifest.json"
    if chat and (lineage := read(manifest).get("lineage")):
        needed = ", ".join(str(row.get("place")) for row in lineage)
        raise InputProblem(
            printable(
                f"{shown(target)} is not the whole record: of a chat the server has the last turn's snapshot, which needs "
                f"{needed} beside it. Audit the folder that it was recorded in, {result.get('folder')}."
            )
        )
    place = folder / "downloaded" / target.resolve().name
    shutil.copytree(target, place, symlinks=True)
    (place / "hydra").rename(place / ".hydra")
    turn = Path(str((result.get("snapshot") or {}).get("path")))
    if chat and turn.parent.name == "snapshot" and re.fullmatch(r"turn-\d+", turn.name):
        (place / "snapshot").rename(
            place / turn.name
        )  # one turn, which lies in a folder of its own
        (place / "snapshot").mkdir()
        (place / turn.name).rename(place / "snapshot" / turn.name)
    return place
