"""The files of a run on the server: everything that explains it, and all that its seal covers, so that who
downloads them can audit them."""

from pathlib import Path
from typing import Any

from harness.snapshot.record import PENDING
from harness.track import snapshot as written

ON_DISK = "kept_on_disk.json"  # where a snapshot is that was not copied
KEPT = (".html", ".json", ".jsonl", ".sig", ".svg")


def log(client: Any, run_id: str, folder: Path, result: dict[str, Any], limit_mb: float) -> None:
    """Log what lies in `folder`; tensors only up to `limit_mb` MiB, else where they are."""
    if result.get("elements"):
        client.log_dict(run_id, {"elements": result["elements"]}, "elements.json")
    for path in _beside(folder):
        client.log_artifact(run_id, str(path))
    client.log_artifacts(run_id, str(folder / ".hydra"), "hydra")
    block, snapshot, name = (
        written.left(result),
        written.lies(folder, result),
        written.called(result),
    )
    if snapshot is None:
        if "://" in str(block.get("path")):  # elsewhere: what is known of it
            stored = written.sizes(result).get("stored_bytes")
            kept = {"path": block["path"], "bytes": stored, "id": block["id"]}
            client.log_dict(run_id, kept, f"{name}/{ON_DISK}")
        return
    stored = sum(p.stat().st_size for p in snapshot.rglob("*") if p.is_file())
    if stored <= limit_mb * 2**20:
        client.log_artifacts(run_id, str(snapshot), name)
    else:
        client.log_artifact(run_id, str(snapshot / "manifest.json"), name)
        kept = {"path": str(snapshot), "bytes": stored, "id": block["id"]}
        client.log_dict(run_id, kept, f"{name}/{ON_DISK}")


def of_run(folder: Path, result: dict[str, Any]) -> dict[str, Path]:
    """What a server may have of the run in `folder`: its name there -> the file here."""
    inner = {"hydra": folder / ".hydra"}
    if there := written.lies(folder, result):
        inner[written.called(result)] = there
    below = {
        f"{name}/{path.relative_to(place)}": path
        for name, place in inner.items()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }
    return {path.name: path for path in _beside(folder)} | below


def of_sweep(folder: Path) -> list[Path]:
    """The tables, the page and the pictures of the sweep in `folder`."""
    return [p for p in sorted(folder.glob("*")) if p.suffix in (".csv", ".html", ".svg")]


def _beside(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.glob("*")) if p.suffix in KEPT and p.name != PENDING]
