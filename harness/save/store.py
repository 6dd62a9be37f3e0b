"""State to snapshot directory and back. Written atomically, read only after it has been verified.

A format (`harness.save.Format`) writes and reads one payload file; everything else (layout, manifest,
digests, lineage, atomicity) is this procedure. FORMAT.md documents the result.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import config
from harness.config import SaveConfig
from harness.errors import ConfigProblem, HarnessError, InputProblem, SnapshotInvalid
from harness.save import atomic, envelope, lineage, mapped, registry, remote, room, writer
from harness.save.access import Access, current, using
from harness.save.assembly import assemble
from harness.save.base import Format
from harness.save.envelope import folder as opened_folder
from harness.save.envelope import own_manifest
from harness.save.files import Folder
from harness.save.lineage import Base
from harness.save.plan import Plan
from harness.save.reading import Reading
from harness.save.remote import fetched, place
from harness.save.validity import faults_of, format_faults
from harness.snapshot import manifest as manifests
from harness.snapshot import schema, signature
from harness.snapshot.state import State

__all__ = ["Access", "check_place", "current", "faults", "fetched", "load", "place", "public", "read_manifest", "save", "signer", "stored_bytes", "unverified", "using"]  # fmt: skip


TRIES = 16  # reads of a snapshot that somebody keeps replacing
_read_from: dict[str, Path] = {}  # id -> the folder that this process read it from last


def save(
    state: State,
    target: Path | str,
    settings: SaveConfig,
    tell: Callable[[str], None] = lambda said: None,
    access: Access | None = None,
) -> dict[str, Any]:
    """Write `state` to the directory (or fsspec URL) `target`; return its manifest. `state` is only
    read.

    What the snapshot `state.parent` in the same folder holds already is referred to, not written
    again (unless `settings.compact`). settings: a SaveConfig. tell: hears what a long save will
    take. access: the job's, unless given. The manifest is validated before anything becomes
    visible. Raises InputProblem when the place cannot be written, has no room or holds a snapshot
    that is not to be replaced, SnapshotInvalid for a state that breaks the manifest's rules or is
    mapped from a file that was edited; ConfigProblem for a format from outside that does not read back what it wrote.
    """
    settings = config.completed("save", settings)
    form, written_by = registry.format_of(settings), registry.target_of(settings)
    access = access or current()
    target = place(target)
    if isinstance(target, str):
        with tempfile.TemporaryDirectory(prefix="harness-") as folder:
            whole = replace(settings, compact=True, sync=False)
            manifest = save(state, Path(folder) / "snapshot", whole, tell, access)
            remote.upload(Path(folder) / "snapshot", target, access.overwrite)
        return manifest
    for origin in {state.parent, *(s.origin for la in state.layers for s in la.segments)}:
        mapped.check(origin)
    base = None if settings.compact else _base(state, target, (settings.name, written_by), access)
    plan = Plan(state, base)
    entries = [entry for rows in plan.entries.values() for entry in rows]
    others = sum(len(data) for data in state.tokenizer_files.values())
    atomic.refuse(target.absolute(), access.overwrite)
    room.check(target, form, entries, others, tell)
    with (
        ThreadPoolExecutor(1, "check") as pool,
        atomic.directory(target, settings.sync, access.overwrite) as growing,
    ):
        checked = pool.submit(schema.position_faults, state)  # while the files are written
        for stem, entries in plan.entries.items():
            plan.wrote(stem, *writer.payload(growing, form, stem, entries, access.encrypt))
        described = writer.tokenizer(growing, state, plan, access.encrypt)
        salt = os.urandom(32).hex() if access.encrypt else None
        manifest = manifests.build(
            plan.stored,
            plan.tensors(),
            plan.files(),
            described,
            plan.lineage(),
            settings.name,
            salt,
            written_by,
        )
        problems = faults_of(manifest) + checked.result()
        if problems:
            raise SnapshotInvalid(str(target), problems, saving=True)
        _refuse_needed(target, manifest["id"])
        writer.manifest(growing, manifest, access)
        if written_by is not None:
            _read_back(growing.path, manifest, form, access)
    if not access.encrypt:
        envelope.written.add(manifest["id"])
    return manifest


def _read_back(folder: Path, manifest: dict[str, Any], form: Format, access: Access) -> None:
    """Raise ConfigProblem unless `form`, from outside, gives back every byte of what it has just written in `folder`."""
    with opened_folder(folder) as written, Reading(written, manifest, form, access.back) as reading:
        problems = reading.own()
    if problems:
        raise ConfigProblem(
            f"save={manifest['payload_format']}: `read` does not give back what `write` was given, so nothing was saved: "
            f"{problems[0]}."
        )


def _refuse_needed(target: Path, snapshot: str) -> None:
    """Raise InputProblem when replacing `target` by another snapshot would break those built on it."""
    names = lineage.dependents(target)
    if names and lineage.find(snapshot, target.absolute().parent, target.name) != target.absolute():
        raise InputProblem(_needed(target, names))


def check_replaced(target: Path | str, source: Mapping[str, Any]) -> None:
    """Raise InputProblem, before any work, when `target` holds a part of the snapshot that is gone on from, whose
    manifest is `source`: what follows it is another snapshot, which cannot take that place."""
    where = place(target)
    names = lineage.dependents(where) if isinstance(where, Path) and source["lineage"] else []
    if not names or not isinstance(where, Path):
        return
    siblings = lineage.Siblings(where.absolute().parent)
    if any(siblings.find(r["snapshot"], where.name) == where.absolute() for r in source["lineage"]):
        raise InputProblem(_needed(where, names))


def _needed(target: Path, names: list[str]) -> str:
    first, more = target.with_name(names[0]), f" and {len(names) - 3} more" * bool(names[3:])
    return (
        f"{target} holds what {', '.join(names[:3])}{more} {'are' if names[1:] else 'is'} built on, so it is "
        "not replaced. Choose another out=DIR, or make the other self-contained first: "
        f"task=save compact=true snapshot={first} out={first} overwrite=true"
    )


def load(source: Path | str, access: Access | None = None) -> tuple[State, dict[str, Any]]:
    """Read the snapshot at `source` after verifying all of it; return the State and its manifest.

    The State's parent is this snapshot. access: the job's, unless given. Replaced while it is read,
    it is read again: what comes back is one snapshot, the old or the new. Raises InputProblem when
    there is none, SnapshotInvalid with every fault found, Untrusted without signature or key.
    """
    access = access or current()

    def whole(folder: Folder) -> tuple[State, dict[str, Any]]:
        manifest = _sound_manifest(folder, access)
        form = registry.reader(manifest, str(source))
        with _verified(folder, manifest, form, access) as reading:
            state, problems = _restored(reading)
        if problems or state is None:
            raise SnapshotInvalid(str(source), problems)
        mapped.remember(manifest["id"], reading.mapped_files)
        _read_from[manifest["id"]] = folder.path.absolute()  # of copies the one that was asked for
        return state, manifest

    with fetched(source) as local:
        return _steady(local, whole)


@contextmanager
def _verified(
    folder: Folder, manifest: dict[str, Any], form: Any, access: Access
) -> Iterator[Reading]:
    """A reading of everything; where a snapshot that it takes files from is not sound, and a copy of that
    one lies beside it, the copy is read instead."""
    avoid: frozenset[Path] = frozenset()
    while True:
        with Reading(folder, manifest, form, access, avoid) as reading:
            if not (unsound := reading.verified().replaceable):
                yield reading
                return
        avoid |= unsound


def _restored(reading: Reading) -> tuple[State | None, list[str]]:
    """The State of a reading, and every fault of both."""
    if reading.faults:
        return None, reading.faults
    try:
        state = assemble(reading.manifest, reading.tensors, reading.tokenizer)
        return state, schema.state_faults(state, reading.manifest)
    except Exception as problem:  # hostile contents may break any of the rules
        return None, [f"its contents do not have the expected form: {problem!r}"[:300]]


def _steady(source: Path, read: Callable[[Folder], Any]) -> Any:
    """`read` the snapshot at `source` through one handle; again when it was replaced meanwhile."""
    for left in reversed(range(TRIES)):
        with opened_folder(source) as folder:
            try:
                return read(folder)
            except (HarnessError, OSError):  # a file may be gone between two looks
                if not (left and folder.replaced()):
                    raise
    raise AssertionError("unreachable")


def _sound_manifest(folder: Folder, access: Access) -> dict[str, Any]:
    manifest = own_manifest(folder, access)
    if problems := faults_of(manifest):
        raise SnapshotInvalid(str(folder.path), problems)
    return manifest


def read_manifest(source: Path | str, access: Access | None = None) -> dict[str, Any]:
    """The validated manifest of the snapshot at `source` (no payload is read)."""
    source, access = place(source), access or current()
    if isinstance(source, Path):
        return _steady(source, lambda folder: _sound_manifest(folder, access))
    parsed = manifests.parse(remote.fetch_manifest(source), source)
    manifest = envelope.unsealed(parsed, access, source)
    if problems := faults_of(manifest):
        raise SnapshotInvalid(source, problems)
    return manifest


def public(source: Path | str) -> dict[str, Any] | None:
    """What the envelope of an encrypted snapshot says without any key; None for a plain one.

    Raises InputProblem when there is no snapshot, SnapshotInvalid when its envelope is not sound.
    """
    source = place(source)
    if isinstance(source, Path):
        with opened_folder(source) as folder:
            document = manifests.parse(envelope.raw_manifest(folder), str(source))
    else:
        document = manifests.parse(remote.fetch_manifest(source), source)
    if not envelope.is_envelope(document):
        return None
    if problems := envelope.faults(document):
        raise SnapshotInvalid(str(source), problems)
    return {k: v for k, v in document.items() if k != "sealed"}


def signer(source: Path) -> str | None:
    """The key file among the job's trusted ones that signed the snapshot; None where none is asked
    for. Raises Untrusted when none of them did."""
    with opened_folder(Path(source)) as folder:
        return envelope.signer(folder, current().trusted)


def faults(source: Path, access: Access | None = None) -> list[str]:
    """Everything wrong with the snapshot at `source`, manifest and files; empty when it is sound.

    Raises InputProblem when there is no snapshot at all, Untrusted without signature or key.
    """
    access = access or current()

    def every(folder: Folder) -> None:
        manifest = own_manifest(folder, access)
        problems = list(faults_of(manifest))
        if schema.readable(manifest) and not format_faults(manifest):
            form = registry.reader(manifest, str(source))
            with _verified(folder, manifest, form, access) as reading:
                problems += reading.faults if problems or reading.faults else _restored(reading)[1]
        if problems:
            raise SnapshotInvalid(str(source), problems)

    try:
        _steady(Path(source), every)
    except SnapshotInvalid as problem:
        return problem.faults
    return []


def unverified(source: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Every tensor as it lies on disk, opened (mapped where the format allows) but not digested.

    Safe only once `read_manifest` accepted the manifest, and then still unchecked: for measuring and
    for damaging on purpose. Raises ValueError for a file that cannot be read.
    """
    form, access = registry.reader(manifest, str(source)), current()
    with Folder(Path(source)) as folder, Reading(folder, manifest, form, access) as reading:
        tensors = reading.mapped()
    if reading.faults:
        raise ValueError(reading.faults[0])
    return tensors


def check_place(target: Path | str) -> None:
    """Raise InputProblem when `out=` names a place that can never be written (a URL is not tried)."""
    where = place(target)
    if isinstance(where, Path):
        atomic.check(where, current().overwrite)
    if key := current().sign:
        signature.check_key(key)


def stored_bytes(source: Path | str) -> int:
    """Bytes the snapshot's own files take; what it refers to in others is not counted."""
    source = place(source)
    if isinstance(source, str):
        return remote.stored_bytes(source)
    return sum(p.lstat().st_size for p in source.rglob("*") if not p.is_dir())


def _base(state: State, target: Path, form: tuple[str, str | None], access: Access) -> Base | None:
    """The parent, when it is a sound snapshot of the same format beside `target`, encrypted with the
    same key where the new one is to be."""
    if not state.parent:
        return None
    siblings = lineage.Siblings(target.absolute().parent)
    read = _read_from.get(state.parent, Path())
    hint = read.name if read.parent == siblings.folder else None
    # what lies at `target` is replaced
    every = [p for p in siblings.every(state.parent, hint) if p.name != target.name]
    bases = (_based(parent, form, access, len(every) > 1) for parent in every)
    return next((base for base in bases if base), None)


def _based(parent: Path, form: tuple[str, str | None], access: Access, read: bool) -> Base | None:
    """`parent` where it can be built on. read: it has copies, of which any may be damaged, so its bytes are
    looked at."""
    access = access.back
    try:
        with Folder(parent) as folder:
            manifest = _sound_manifest(folder, access)
            written = registry.reader(manifest, str(parent)) if read else None
            with Reading(folder, manifest, written, access) as reading:
                missing = reading.verified().faults if read else reading.missing()
    except (HarnessError, ValueError):
        return None
    if (manifest["payload_format"], manifest.get("payload_target")) != form or missing:
        return None
    if bool(manifest.get("salt")) != bool(access.encrypt):
        return None
    return Base(parent.name, manifest)
