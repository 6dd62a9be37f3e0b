"""State to snapshot directory and back. Written atomically, read only after it has been verified.

A format is one file beside this one with `EXTENSION`, `MAPPED`, `write` and `read`; everything else
(layout, manifest, digests, lineage, atomicity) is this procedure. FORMAT.md documents the result.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import config, variants
from harness.errors import InputProblem, SnapshotInvalid, printable
from harness.save import atomic, lineage, remote, room
from harness.save.files import Sink
from harness.save.lineage import Base
from harness.save.reading import Reading, assemble, own_manifest
from harness.save.remote import fetched, place
from harness.save.streaming import Entry, Stream
from harness.snapshot import manifest as manifests
from harness.snapshot import schema
from harness.snapshot.digest import digest_bytes, digest_document
from harness.snapshot.state import State, coded

__all__ = ["check_place", "faults", "fetched", "format_named", "load", "names", "place", "read_manifest", "save", "stored_bytes", "unverified"]  # fmt: skip


def names() -> list[str]:
    """Every format that a snapshot may name."""
    return variants.options("save", variants.conf_dir())


def format_named(name: str) -> Any:
    """The module of a format. Raises ConfigProblem for an unknown name."""
    variants.check("save", "save", [name])
    return import_module(f"harness.save.{name}")


def save(state: State, target: Path | str, settings: Any, tell: Callable[[str], None] = lambda said: None) -> dict[str, Any]:  # fmt: skip
    """Write `state` to the directory (or fsspec URL) `target`; return its manifest. `state` is only
    read.

    What the snapshot `state.parent` in the same folder holds already is referred to, not written
    again (unless `settings.compact`). settings: a SaveConfig. tell: hears what a long save will
    take. The manifest is validated before anything becomes visible. Raises InputProblem when the
    place cannot be written or has no room, SnapshotInvalid for a state that breaks the manifest's
    rules.
    """
    form, settings = format_named(settings.name), config.completed("save", settings)
    target = place(target)
    if isinstance(target, str):
        with tempfile.TemporaryDirectory(prefix="harness-") as folder:
            whole = replace(settings, compact=True, sync=False)
            manifest = save(state, Path(folder) / "snapshot", whole, tell)
            remote.upload(Path(folder) / "snapshot", target, manifest)
        return manifest
    base = None if settings.compact else _base(state, target, settings.name)
    plan = _Plan(state, base)
    entries = [entry for found in plan.own.values() for entry in found]
    others = sum(len(data) for data in state.tokenizer_files.values())
    room.check(target, form, entries, others, settings, tell)
    with ThreadPoolExecutor(1, "check") as pool, atomic.directory(target, settings.sync) as growing:
        checked = pool.submit(schema.position_faults, state)  # while the files are written
        for key, entries in plan.own.items():
            plan.wrote(key, *_write(growing, form, key, entries, settings))
        described = _write_tokenizer(growing, state, plan)
        manifest = manifests.build(
            plan.stored, plan.tensors(), plan.files(), described, plan.lineage(), settings.name
        )
        found = faults_of(manifest) + checked.result()
        if found:
            raise SnapshotInvalid(f"{target} (about to be written)", found)
        _refuse_needed(target, manifest["id"])
        with Sink(growing.path / manifests.NAME) as sink:
            sink.write_raw(manifests.dump(manifest))
        growing.finished(sink.path)
    return manifest


def _refuse_needed(target: Path, snapshot: str) -> None:
    """Raise InputProblem when replacing `target` by another snapshot would break those built on it."""
    held = lineage.dependents(target)
    if held and lineage.find(snapshot, target.absolute().parent, target.name) != target.absolute():
        first = target.with_name(held[0])
        raise InputProblem(
            f"{target} holds what {', '.join(held[:3])} {'are' if held[1:] else 'is'} built on, so it is "
            "not replaced. Choose another out=DIR, or make the other self-contained first: "
            f"task=save compact=true snapshot={first} out={first}"
        )


def load(source: Path | str) -> tuple[State, dict[str, Any]]:
    """Read the snapshot at `source` after verifying all of it; return the State and its manifest.

    The State's parent is this snapshot. Raises InputProblem when there is none, SnapshotInvalid
    with every fault found.
    """
    with fetched(source) as folder:
        manifest = read_manifest(folder)
        reading = Reading(folder, manifest, format_named(manifest["payload_format"]))
        reading.verified()
    if not reading.faults:
        state = assemble(manifest, reading)
        reading.faults += schema.state_faults(state, manifest)
    if reading.faults:
        raise SnapshotInvalid(str(source), reading.faults)
    return state, manifest


def read_manifest(source: Path | str) -> dict[str, Any]:
    """The validated manifest of the snapshot at `source` (no payload is read)."""
    source = place(source)
    if isinstance(source, str):
        manifest = manifests.parse(remote.fetch_manifest(source), source)
    else:
        manifest = own_manifest(source)
    if found := faults_of(manifest):
        raise SnapshotInvalid(str(source), found)
    return manifest


def faults(source: Path) -> list[str]:
    """Everything wrong with the snapshot at `source`, manifest and files; empty when it is sound.

    Raises InputProblem when there is no snapshot at all.
    """
    try:
        manifest = own_manifest(Path(source))
    except SnapshotInvalid as problem:
        return problem.faults
    found = list(faults_of(manifest))
    if schema.readable(manifest) and manifest["payload_format"] in names():
        reading = Reading(Path(source), manifest, format_named(manifest["payload_format"]))
        reading.verified()
        found += reading.faults
        if not found:
            found = schema.state_faults(assemble(manifest, reading), manifest)
    return [printable(f) for f in found]


def unverified(source: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Every tensor as it lies on disk, opened (mapped where the format allows) but not digested.

    Safe only once `read_manifest` accepted the manifest, and then still unchecked: for measuring and
    for damaging on purpose. Raises ValueError for a file that cannot be read.
    """
    reading = Reading(Path(source), manifest, format_named(manifest["payload_format"]))
    tensors = reading.mapped()
    if reading.faults:
        raise ValueError(reading.faults[0])
    return tensors


_sound: dict[str, None] = {}


def faults_of(manifest: dict[str, Any]) -> list[str]:
    """The schema's faults; a manifest this process found sound before is not checked again."""
    key = digest_document(manifest)
    if key in _sound:
        return []
    found = schema.faults(manifest)
    if not found and manifest["payload_format"] not in names():
        found = [f"payload_format {manifest['payload_format'][:40]!r} is not a format"]
    if not found:
        _sound[key] = None
        if len(_sound) > 1024:
            del _sound[next(iter(_sound))]
    return found


def check_place(target: Path | str) -> None:
    """Raise InputProblem when `out=` names a place that can never be written (a URL is not tried)."""
    where = place(target)
    if isinstance(where, Path):
        atomic.check(where)


def stored_bytes(source: Path | str) -> int:
    """Bytes the snapshot's own files take; what it refers to in others is not counted."""
    source = place(source)
    if isinstance(source, str):
        return remote.stored_bytes(source)
    return sum(p.lstat().st_size for p in source.rglob("*") if not p.is_dir())


class _Plan:
    """Which tensors go into which file, and which the base holds already.

    own: file key -> entries; `stored`: the state as its documents will describe it.
    """

    def __init__(self, state: State, base: Base | None):
        self.state, self.base = state, base
        self.own: dict[str, list[Entry]] = defaultdict(list)
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
        held = {r["file"]: r for r in self.base.manifest["files"]} if self.base else {}
        inherited = [held[f] for f in self._inherited if not f.startswith("tokenizer/")]
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
        found = lineage.pieces(layer, self.base)
        fresh = sum(p.rows is None for p in found)
        for number, piece in enumerate(found):
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
        return {"segments": [p.tokens for p in found], **coded([p.coded for p in found])}

    def _add(self, key: str, name: str, kind: str, views: tuple, dim: int = 0) -> None:
        stored = manifests.stored_name(name)
        entry = Entry(stored, views, dim)
        self.own[key].append(entry)
        self._place[name] = key, stored
        self._rows.append(
            manifests.tensor_row(name, kind, entry.dtype, entry.shape, entry.nbytes, "", "")
        )


def _base(state: State, target: Path, form: str) -> Base | None:
    """The parent, when it is a sound snapshot of the same format beside `target`."""
    if not state.parent:
        return None
    found = lineage.find(state.parent, target.absolute().parent)
    if found is None or found.name == target.name:  # replacing the parent: nothing can refer to it
        return None
    try:
        manifest = read_manifest(found)
        reading = Reading(found, manifest, None)
    except (InputProblem, SnapshotInvalid):
        return None
    if manifest["payload_format"] != form or reading.missing():
        return None
    return Base(found.name, manifest)


def _write(
    growing: atomic.Growing, form: Any, key: str, entries: list[Entry], settings: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """One payload file, named after its contents; its row and the digests of its tensors."""
    stream = Stream(list(entries))
    with Sink(growing.path / f"{key}.part") as sink:
        try:
            form.write(sink, stream, settings)
        except Exception:
            if sink.problem:  # a library may have replaced it with an error of its own
                raise sink.problem from None
            raise
    contents = [[e.name, e.dtype, e.shape, stream.digests[e.name]] for e in entries]
    name = f"{key.partition('-')[0]}-{digest_document(contents)[:16]}.{form.EXTENSION}"
    path = growing.path / name
    sink.path.rename(path)
    growing.finished(path)
    row = {
        "file": path.name,
        "nbytes": sink.nbytes,
        "tensor_bytes": sum(e.nbytes for e in entries),
        "covered": sink.covered,
        "digest": sink.digest(),
    }
    return row, stream.digests


def _write_tokenizer(growing: atomic.Growing, state: State, plan: _Plan) -> list[dict[str, Any]]:
    folder = growing.path / "tokenizer"
    folder.mkdir(mode=0o700)
    held = {r["file"]: r for r in plan.base.manifest["tokenizer_files"]} if plan.base else {}
    rows = []
    for name, data in sorted(state.tokenizer_files.items()):
        row = {"file": name, "nbytes": len(data), "digest": digest_bytes(data)}
        rows.append(row)
        if held.get(name) == row:
            plan.inherit(f"tokenizer/{name}")
            continue
        with Sink(folder / name) as sink:
            sink.write_raw(data)
        growing.finished(sink.path)
    return rows
