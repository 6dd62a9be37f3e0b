"""What a save has to write: which tensors go into which file, and which an older snapshot holds."""

from collections import defaultdict
from typing import Any

from harness.save import lineage
from harness.save.lineage import Base
from harness.save.streaming import Entry
from harness.snapshot import manifest as manifests
from harness.snapshot.codes import coded
from harness.snapshot.state import State


class Plan:
    """Which tensors go into which file, and which the base holds already.

    entries: file key -> entries; `stored`: the state as its documents will describe it.
    """

    def __init__(self, state: State, base: Base | None):
        self.state, self.base = state, base
        self.entries: dict[str, list[Entry]] = defaultdict(list)
        self._rows: list[dict[str, Any]] = []
        self._place: dict[str, tuple[str, str]] = {}  # tensor -> (file key, stored name)
        self._written: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
        self._inherited: dict[str, tuple[str, str]] = {}
        layers = [self._layer(layer) for layer in state.layers]
        for name in ("next_position", "token_ids", "attention_mask", "logits", "rng"):
            self._add("state", name, "none", (getattr(state, name),))
        described = state.documents["kv_format"]["layers"]
        entries = [{**d, **stored} for d, stored in zip(described, layers, strict=True)]
        self.stored = state.document("kv_format", layers=entries)
        if not self._inherited:
            self.base = None

    def wrote(self, key: str, row: dict[str, Any], digests: dict[str, str]) -> None:
        self._written[key] = row, digests

    def tensors(self) -> list[dict[str, Any]]:
        """The table `tensors`, complete once every file was written."""
        for row in self._rows:
            if place := self._place.get(row["name"]):
                file, digests = self._written[place[0]]
                row["file"], row["digest"] = file["file"], digests[place[1]]
        return self._rows

    def files(self) -> list[dict[str, Any]]:
        earlier = {r["file"]: r for r in self.base.manifest["files"]} if self.base else {}
        inherited = [earlier[f] for f in self._inherited if not f.startswith("tokenizer/")]
        return [row for row, _ in self._written.values()] + inherited

    def inherit(self, file: str) -> None:
        """Refer to the base's `file` instead of writing it."""
        assert self.base is not None
        self._inherited[file] = self.base.owner(file)

    def lineage(self) -> list[dict[str, Any]]:
        owners: dict[tuple[str, str], list[str]] = defaultdict(list)
        for file, owner in self._inherited.items():
            owners[owner].append(file)
        return [
            {"snapshot": snapshot, "place": place, "files": files}
            for (snapshot, place), files in owners.items()
        ]

    def _layer(self, layer: Any) -> dict[str, Any]:
        """What element +3 says of the layer's segments as they are stored."""
        pieces = lineage.pieces(layer, self.base)
        fresh = sum(p.rows is None for p in pieces)
        for number, piece in enumerate(pieces):
            for part, views, dim in lineage.views(layer, piece):
                name = f"layer.{layer.index}.segment.{number}.{part}"
                if piece.rows:
                    row = {**piece.rows[part], "name": name}
                    self._rows.append(row)
                    self.inherit(row["file"])
                else:
                    self._add(f"kv-{fresh}", name, layer.kind, views, dim)
            fresh -= piece.rows is None
        for part, tensor in sorted(layer.recurrent.items()):
            self._add("state", f"layer.{layer.index}.{part}", layer.kind, (tensor,))
        if layer.received is not None:
            self._add("state", f"layer.{layer.index}.received", layer.kind, (layer.received,))
        return {"segments": [p.tokens for p in pieces], **coded([p.coded for p in pieces])}

    def _add(self, key: str, name: str, kind: str, views: tuple, dim: int = 0) -> None:
        stored = manifests.stored_name(name)
        entry = Entry(stored, views, dim)
        self.entries[key].append(entry)
        self._place[name] = key, stored
        self._rows.append(
            manifests.tensor_row(name, kind, entry.dtype, entry.shape, entry.nbytes, "", "")
        )
