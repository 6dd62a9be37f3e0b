"""The files of a run on the server: what explains it, and all that its seal covers."""

from pathlib import Path
from typing import Any

from harness.snapshot.record import PENDING
from harness.track import snapshot

ON_DISK = "kept_on_disk.json"  # where a snapshot is that was not copied
KEPT = (".html", ".json", ".jsonl", ".sig", ".svg")


def log(client: Any, run_id: str, folder: Path, result: dict[str, Any], limit_mb: float) -> None:
    """Log what lies in `folder`; of a snapshot above `limit_mb` MiB the manifest, and where the rest is."""
    files, lies = of_run(folder, result), snapshot.lies(folder, result)
    name, block = snapshot.called(result), snapshot.left(result)
    stored: Any = sum(
        p.stat().st_size for place, p in files.items() if place.startswith(f"{name}/")
    )
    where = None
    if lies and stored > limit_mb * 2**20:
        where, manifest = str(lies), f"{name}/manifest.json"
        files = {k: p for k, p in files.items() if not k.startswith(f"{name}/") or k == manifest}
    elif not lies and "://" in str(block.get("path")):
        where, stored = block["path"], snapshot.sizes(result).get("stored_bytes")
    if where:
        kept = {"path": where, "bytes": stored, "id": block.get("id")}
        client.log_dict(run_id, kept, f"{name}/{ON_DISK}")
    if result.get("elements"):
        client.log_dict(run_id, {"elements": result["elements"]}, "elements.json")
    for place, path in files.items():
        client.log_artifact(run_id, str(path), place.rpartition("/")[0] or None)


def of_run(folder: Path, result: dict[str, Any]) -> dict[str, Path]:
    """What a server may have of the run in `folder`: its name there -> the file here."""
    inner = {"hydra": folder / ".hydra"}
    if lies := snapshot.lies(folder, result):
        inner[snapshot.called(result)] = lies
    below = {
        f"{name}/{path.relative_to(place)}": path
        for name, place in inner.items()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }
    beside = [p for p in sorted(folder.glob("*")) if p.suffix in KEPT and p.name != PENDING]
    return {path.name: path for path in beside} | below


def of_sweep(folder: Path) -> list[Path]:
    """The tables, the page and the pictures of the sweep in `folder`."""
    return [p for p in sorted(folder.glob("*")) if p.suffix in (".csv", ".html", ".svg")]
