"""Which of a state's tokens its parent has stored already, and where that is.

A snapshot may refer to payload files of snapshots in the same folder. They are found by id, first
where they were, then among the siblings; nothing is ever read outside that folder.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.save import files
from harness.snapshot import manifest as manifests
from harness.snapshot import schema
from harness.snapshot.codes import coded, coded_as
from harness.snapshot.digest import digest_tensor
from harness.snapshot.state import LayerState, Segment, aligned

PARTS = ("key", "value", "positions")
DIM = {"key": 2, "value": 2, "positions": -1}
LIMIT = 8  # segments per layer before the newest are merged, so that manifests stay small
SIBLINGS = 4096  # folders looked at when a snapshot is not where it was
_OWNER = re.compile(rb'\{"snapshot": "([0-9a-f]{64})"')
_ID = re.compile(rb'"id": "([0-9a-f]{64})"')


@dataclass(frozen=True)
class Base:
    """A sound snapshot whose files may be referred to. place: its folder's name."""

    place: str
    manifest: dict[str, Any]

    def owner(self, file: str) -> tuple[str, str]:
        """`(snapshot id, place)` of the snapshot that really holds `file`."""
        for row in self.manifest["lineage"]:
            if file in row["files"]:
                return row["snapshot"], row["place"]
        return self.manifest["id"], self.place


@dataclass(frozen=True)
class Piece:
    """Tokens `[start, stop)` of a layer, stored together. rows: the base's, when it holds them.
    coded: the segment itself, where it is kept as codes, which are never joined with others."""

    start: int
    stop: int
    rows: dict[str, dict[str, Any]] | None = None
    coded: Segment | None = None

    @property
    def tokens(self) -> int:
        return self.stop - self.start


def find(snapshot: str, folder: Path, hint: str | None = None) -> Path | None:
    """The snapshot with this id among the directories in `folder`; None when there is none."""
    return Siblings(folder).find(snapshot, hint)


class Siblings:
    """The snapshots in a folder by id; however often it is asked, it looks at each once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._known: dict[str, list[Path]] | None = None

    def find(self, snapshot: str, hint: str | None = None) -> Path | None:
        """The one with this id: where it was, else anywhere beside; None when there is none."""
        return next(self.every(snapshot, hint), None)

    def every(self, snapshot: str, hint: str | None = None) -> Iterator[Path]:
        """Each one with this id, copies of one another: first where it was, then by name."""
        first = self.folder / hint if hint and schema.is_place(hint) else None
        if first is not None and _peek(first) == snapshot:
            yield first
        if self._known is None:
            self._known = {}
            for path in _siblings(self.folder):
                if (claimed := _peek(path)) is not None:
                    self._known.setdefault(claimed, []).append(path)
        yield from (path for path in self._known.get(snapshot, ()) if path != first)


def dependents(target: Path) -> list[str]:
    """Names of the snapshots beside `target` that take files from it, unless a copy of it is there
    too. Manifests are searched, not validated."""
    known = _peek(target)
    others = [p for p in _siblings(target.absolute().parent) if p.name != target.name]
    if known is None or any(_peek(p) == known for p in others):
        return []
    return [p.name for p in others if known.encode() in _OWNER.findall(_manifest(p))]


def pieces(layer: LayerState, base: Base | None) -> list[Piece]:
    """How to store `layer`: what `base` holds already, the rest as it is, small ones merged."""
    inherited = list(_inherited(layer, base)) if base else []
    result: list[Piece] = []
    reached = 0
    for piece in [*inherited, Piece(layer.kept, layer.kept)]:
        for place, segment in _placed(layer):
            a, b = max(place, reached), min(place + segment.tokens, piece.start)
            if a < b:
                coded = segment.cut(a - place, b - place) if segment.coded else None
                result.append(Piece(a, b, coded=coded))
        if piece.tokens:
            result.append(piece)
        reached = piece.stop
    return _merged(result)


def views(layer: LayerState, piece: Piece) -> Iterator[tuple[str, tuple[torch.Tensor, ...], int]]:
    """`(part, views, dim)` of everything that is stored of the piece: the views, joined along `dim`."""
    if piece.coded is not None:
        yield from ((part, (tensor,), 0) for part, tensor in piece.coded.tensors())
    else:
        yield from ((part, cut(layer, piece, part), DIM[part]) for part in PARTS)


def cut(layer: LayerState, piece: Piece, part: str) -> tuple[torch.Tensor, ...]:
    """The views that together are `part` of the piece, which is plain; usually one."""
    parts = []
    for place, segment in _placed(layer):
        start, stop = max(piece.start - place, 0), min(piece.stop - place, segment.tokens)
        if start < stop:
            parts.append(getattr(segment, part).narrow(DIM[part], start, stop - start))
    return tuple(aligned(parts) if part == "positions" else parts)


def _placed(layer: LayerState) -> Iterator[tuple[int, Segment]]:
    """Every segment with the place of its first token."""
    place = 0
    for segment in layer.segments:
        yield place, segment
        place += segment.tokens


def _merged(pieces: list[Piece]) -> list[Piece]:
    """With more than LIMIT pieces, join the newest, as many as are no larger than what follows them.

    A token is rewritten only when its piece at least doubles: N turns write O(N log N) bytes at
    worst, and never more than LIMIT rows per layer, but for codes, which stay as they are.
    """
    plain = next((i for i, p in enumerate(reversed(pieces)) if p.coded), len(pieces))
    if len(pieces) <= LIMIT or plain < 2:
        return pieces
    sizes = [p.tokens for p in pieces]
    first = next(
        i
        for i in range(len(pieces) - plain, len(pieces))
        if i == len(pieces) - 2 or sizes[i] <= sum(sizes[i + 1 :])
    )
    return [*pieces[:first], Piece(pieces[first].start, pieces[-1].stop)]


def _inherited(layer: LayerState, base: Base) -> Iterator[Piece]:
    """The base's segments that `layer` still has, byte for byte (compared by digest)."""
    entries = base.manifest["documents"]["kv_format"]["layers"]
    if layer.index >= len(entries) or not layer.segments:
        return
    entry = entries[layer.index]
    rows = {r["name"]: r for r in base.manifest["tensors"]}
    added = layer.seen - entry["seen"]
    place = -max(0, sum(entry["segments"]) + added - layer.kept)  # a window dropped the oldest
    for number, tokens in enumerate(entry["segments"]):
        piece = Piece(place, place + tokens)
        place += tokens
        if piece.start < 0 or not tokens:
            continue
        if piece.stop > layer.kept:
            return
        stem = f"layer.{layer.index}.segment.{number}"
        inside = [
            segment
            for at, segment in _placed(layer)
            if at < piece.stop and piece.start < at + segment.tokens
        ]
        described = coded_as(entry, number)
        if described is None:
            if any(segment.coded for segment in inside):
                return
        elif len(inside) != 1 or coded(inside).get("coded") != [described]:
            return
        else:
            piece = replace(piece, coded=inside[0])
        stored = {part: rows[f"{stem}.{part}"] for part, _, _ in views(layer, piece)}
        if not all(_same(tensors, stored[part], dim) for part, tensors, dim in views(layer, piece)):
            return
        yield replace(piece, rows=stored)


def _same(tensors: tuple[torch.Tensor, ...], row: dict[str, Any], dim: int) -> bool:
    tensor = tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim)
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != row["dtype"] or list(tensor.shape) != row["shape"]:
        return False
    return digest_tensor(tensor) == row["digest"]


def _siblings(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                e.name
                for e, _ in zip(entries, range(SIBLINGS), strict=False)
                if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
            )
    except OSError:
        names = []
    yield from (folder / n for n in names)


def _peek(folder: Path) -> str | None:
    """The id a directory claims, from its manifest's first lines; nothing is validated."""
    match = _ID.search(_manifest(folder, 4096))
    return match.group(1).decode() if match else None


def _manifest(folder: Path, limit: int = manifests.MAX_BYTES) -> bytes:
    """The first bytes of a directory's manifest; empty when it holds none."""
    if folder.is_symlink() or not folder.is_dir():
        return b""
    try:
        with files.opened(folder, manifests.NAME) as file:
            return file.read(limit)
    except ValueError:
        return b""
