"""The files of a run on the server: everything that explains it, and all that its seal covers, so that who
downloads them can audit them."""

from pathlib import Path
from typing import Any

from harness.snapshot.record import PENDING

KEPT = (".html", ".json", ".jsonl", ".sig", ".svg")


def log(client: Any, run_id: str, folder: Path, result: dict[str, Any], limit_mb: float) -> None:
    """Log what lies in `folder`; tensors only up to `limit_mb` MiB, else where they are."""
    if result.get("elements"):
        client.log_dict(run_id, {"elements": result["elements"]}, "elements.json")
    for path in _beside(folder):
        client.log_artifact(run_id, str(path))
    client.log_artifacts(run_id, str(folder / ".hydra"), "hydra")
    snapshot = folder / "snapshot"
    if not (snapshot / "manifest.json").is_file():
        return
    stored = sum(p.stat().st_size for p in snapshot.rglob("*") if p.is_file())
    if stored <= limit_mb * 2**20:
        client.log_artifacts(run_id, str(snapshot), "snapshot")
    else:
        client.log_artifact(run_id, str(snapshot / "manifest.json"), "snapshot")
        kept = {"path": str(snapshot), "bytes": stored, "id": result["snapshot"]["id"]}
        client.log_dict(run_id, kept, "snapshot/kept_on_disk.json")


def of_run(folder: Path) -> dict[str, Path]:
    """What a server may have of the run in `folder`: its name there -> the file here."""
    inner = {"hydra": folder / ".hydra", "snapshot": folder / "snapshot"}
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
