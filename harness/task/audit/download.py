"""A record as a tracking server hands it out: all of its files, `.hydra` under the name `hydra`."""

import shlex
import shutil
from pathlib import Path

from harness.errors import InputProblem
from harness.pipeline.finish import shown


def command(run_id: str, uri: str) -> str:
    """What fetches the files of a run into a folder, and audits that."""
    fetch = (
        f"MLFLOW_TRACKING_URI={shlex.quote(uri)} mlflow artifacts download -r {run_id} -d record"
    )
    return f"`{fetch}`, then audit run=record"


def unfolded(target: Path, folder: Path) -> Path:
    """`target`; of one that was downloaded a copy below the audit's `folder`, where every file has the name
    that it was sealed by. Raises InputProblem where its snapshot was too large for the server."""
    if (target / ".hydra").exists() or not (target / "hydra").is_dir():
        return target
    if (target / "snapshot" / "kept_on_disk.json").is_file():
        raise InputProblem(
            f"{shown(target)} is not the whole record: its snapshot was over track.artifact_limit_mb, so the "
            "server has its manifest alone. Audit the folder that it was recorded in, which "
            "snapshot/kept_on_disk.json names."
        )
    place = folder / "downloaded" / target.resolve().name
    shutil.copytree(target, place, symlinks=True)
    (place / "hydra").rename(place / ".hydra")
    return place
