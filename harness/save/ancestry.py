"""The snapshots that a snapshot continues, as far as they are still beside it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.save import store
from harness.save.lineage import Siblings

Ancestor = tuple[Path, dict[str, Any]]


def ancestors(source: Path | str) -> Iterator[Ancestor]:
    """`(place, manifest)` of the parent of the snapshot at `source`, of that one's parent, and so on;
    where the chain breaks, of those whose files were referred to, the longest first. Manifests are
    validated, no payload is read; one that is gone, damaged or sealed is passed over. Nothing for a
    snapshot at a URL."""
    place = store.place(source)
    if not isinstance(place, Path):
        return
    siblings = Siblings(place.absolute().parent)
    chain: list[dict[str, Any]] = [store.read_manifest(place)]
    listed = {chain[0]["id"]}
    while parent := chain[-1].get("parent"):
        there = None if parent in listed else _read(siblings, parent)
        listed.add(parent)
        if there is None:
            break
        chain.append(there[1])
        yield there
    rows = [row for manifest in chain for row in manifest["lineage"]]
    owners = {row["snapshot"]: row["place"] for row in rows if row["snapshot"] not in listed}
    rest = [there for name, hint in owners.items() if (there := _read(siblings, name, hint))]
    yield from sorted(rest, key=lambda there: -there[1]["tokens"])


def _read(siblings: Siblings, snapshot: str, hint: str | None = None) -> Ancestor | None:
    folder = siblings.find(snapshot, hint)
    try:
        manifest = store.read_manifest(folder) if folder else None
    except HarnessError:
        return None
    return (folder, manifest) if folder and manifest and manifest["id"] == snapshot else None
