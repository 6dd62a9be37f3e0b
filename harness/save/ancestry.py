"""The snapshots that a snapshot continues, as far as they are still beside it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.save import store
from harness.save.lineage import Siblings


def ancestors(source: Path | str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """`(place, manifest)` of the parent of the snapshot at `source`, of that one's parent, and of
    those whose files they refer to, nearest first. Manifests are validated, no payload is read; one
    that is gone, damaged or sealed is passed over. Nothing for a snapshot at a URL."""
    place = store.place(source)
    if not isinstance(place, Path):
        return
    siblings = Siblings(place.absolute().parent)
    waiting = [store.read_manifest(place)]
    asked = {waiting[0]["id"]}
    while waiting:
        child = waiting.pop(0)
        owners = [(row["snapshot"], row["place"]) for row in child["lineage"]]
        for snapshot, hint in ((child.get("parent"), None), *owners):
            if snapshot is None or snapshot in asked:
                continue
            asked.add(snapshot)
            folder = siblings.find(snapshot, hint)
            try:
                manifest = store.read_manifest(folder) if folder else None
            except HarnessError:
                continue
            if folder and manifest and manifest["id"] == snapshot:
                waiting.append(manifest)
                yield folder, manifest
