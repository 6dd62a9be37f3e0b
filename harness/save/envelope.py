"""The manifest of a snapshot as it lies there: plain, or in an envelope that hides all but its frame.

The envelope of an encrypted snapshot is JSON too. In clear stand the format version, the id (a digest
over a random salt too, so that nothing can be guessed from it), the cipher, the key's hint, the names
and sizes of the files and the ids of snapshots it takes files from. All that is authenticated data of
the encrypted manifest.
"""

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from harness.errors import InputProblem, SnapshotInvalid, Untrusted, printable
from harness.save import atomic, cipher, contents, files, leftovers
from harness.save.access import Access
from harness.snapshot import manifest as manifests
from harness.snapshot import signature
from harness.snapshot.digest import canonical

DEPTH, MOST = 5, 1000  # folders below which snapshots are looked for, and how many of them
written: set[str] = set()  # ids of the plain snapshots that this process wrote
FIELDS = {"format_version", "id", "encryption", "lineage", "files", "sealed"}


def sealed(manifest: dict[str, Any], key: cipher.Key, folder: Path) -> dict[str, Any]:
    """The envelope of `manifest`, whose files lie encrypted in `folder`."""
    rows = sorted(files.listing(folder) - {manifests.NAME})
    frame = {
        "format_version": manifest["format_version"],
        "id": manifest["id"],
        "encryption": {"cipher": cipher.NAME, "key": key.hint},
        "lineage": manifest["lineage"],
        "files": [{"file": name, "nbytes": (folder / name).stat().st_size} for name in rows],
    }
    data = key.sealed(manifests.dump(manifest), canonical(frame))
    return {**frame, "sealed": base64.b64encode(data).decode()}


def is_envelope(document: dict[str, Any]) -> bool:
    return "encryption" in document


def unsealed(document: dict[str, Any], access: Access, where: str) -> dict[str, Any]:
    """The manifest in `document`: itself, where it is no envelope.

    Raises Untrusted without the right key, and for a plain one where a key is given: anybody can put that in the
    place of what was encrypted, unless this process wrote it. Raises SnapshotInvalid for an envelope that is not sound.
    """
    if not is_envelope(document):
        if access.decrypt is not None and document.get("id") not in written:
            raise Untrusted(
                f"the snapshot at {where} is not encrypted, and decrypt= asks for one that is. "
                "Leave decrypt= out to read it."
            )
        return document
    if problems := faults(document):
        raise SnapshotInvalid(where, problems)
    key, hint = access.key, document["encryption"]["key"]
    if key is None:
        raise Untrusted(f"the snapshot at {where} is encrypted: give decrypt=KEYFILE (key {hint}).")
    frame = {k: v for k, v in document.items() if k != "sealed"}
    try:
        data = key.unsealed(base64.b64decode(document["sealed"], validate=True), canonical(frame))
    except cipher.WrongKey:
        if key.hint != hint:
            raise Untrusted(
                f"the snapshot at {where} is encrypted with another key ({hint}) than the one given "
                f"({key.hint})."
            ) from None
        fault = f"{manifests.NAME} was changed after it was encrypted"
        raise SnapshotInvalid(where, [fault]) from None
    except (ValueError, binascii.Error):
        raise SnapshotInvalid(where, [f"{manifests.NAME} holds no sealed manifest"]) from None
    manifest = manifests.parse(data, where)
    if manifest.get("id") != document["id"] or manifest.get("lineage") != document["lineage"]:
        raise SnapshotInvalid(where, ["the envelope is not that of the manifest in it"])
    return manifest


def faults(document: dict[str, Any]) -> list[str]:
    """What is wrong with the frame of an envelope; its contents are not looked at."""
    version = document.get("format_version")
    if type(version) is not int or not 1 <= version <= manifests.FORMAT_VERSION:
        return [f"format_version is {str(version)[:40]!r}, expected {manifests.FORMAT_VERSION}"]
    match document:
        case {
            "id": str(),
            "encryption": {"cipher": cipher.NAME, "key": str()},
            "lineage": list(),
            "files": [*rows],
            "sealed": str(),
        } if set(document) == FIELDS:
            if all(map(_is_file, rows)):
                return []
            return ["a row of the envelope's files is not (file, nbytes)"]
    return ["the envelope of an encrypted snapshot has other fields than it should"]


def _is_file(row: Any) -> bool:
    match row:
        case {"file": str(), "nbytes": int(nbytes)} if len(row) == 2 and type(nbytes) is int:
            return 0 <= nbytes < 1 << 50
    return False


def _near(source: Path) -> str:
    """The snapshot beside `source` whose name is most like its own, as the end of a message."""
    with suppress(OSError):
        names = [p.name for p in source.parent.iterdir() if (p / manifests.NAME).is_file()]
        if near := get_close_matches(source.name, names, n=1):
            return f" Did you mean {printable(str(source.with_name(near[0])))}?"
    return " Check the path."


@contextmanager
def folder(source: Path) -> Iterator[files.Folder]:
    """The snapshot directory at `source`, held open. Raises InputProblem when there is none."""
    if not source.is_dir():
        if not source.is_symlink():
            atomic.recover(source)
        if source.is_file():
            raise InputProblem(f"snapshot={source} is a file. Give the directory that holds it.")
        if not source.is_dir():
            said = f"there is no such directory.{_near(source)} {leftovers.beside(source)}".rstrip()
            raise InputProblem(f"snapshot={source}: {said}")
    try:
        opened = files.Folder(source)
    except ValueError as problem:
        raise InputProblem(f"snapshot={source} {problem}.") from None
    with opened:
        try:
            yield opened
        except OSError as problem:
            said = f"it cannot be read: {problem.strerror or problem}"
            raise SnapshotInvalid(str(source), [said]) from None


def raw_manifest(source: files.Folder) -> bytes:
    """The manifest's bytes. Raises InputProblem when there is no snapshot, SnapshotInvalid when it
    is no plain file."""
    try:
        with files.opened(source, manifests.NAME) as file:
            return file.read(manifests.MAX_BYTES + 1)
    except ValueError as problem:
        if str(problem) == "is missing":
            raise InputProblem(_no_snapshot(source.path)) from None
        raise SnapshotInvalid(str(source.path), [f"{manifests.NAME} {problem}"]) from None


def _no_snapshot(place: Path) -> str:
    said = f"snapshot={place}: the directory holds no {manifests.NAME}, so it is no snapshot."
    if turns := contents.turns(place):
        said += f" It holds the turns of a chat; the newest is {turns[-1]}"
    elif (place / "snapshot" / manifests.NAME).is_file():
        said += f" It is a run's; what the run saved is snapshot={place / 'snapshot'}"
    elif below := _below(place):
        newest = max(below, key=lambda path: path.stat().st_mtime).parent
        lie = (
            "There is one below it"
            if len(below) == 1
            else f"Below it lie {len(below)}; the newest is"
        )
        said += f" {lie}{':' * (len(below) == 1)} snapshot={newest}"
    return f"{said} {leftovers.beside(place)}".rstrip()


def _below(place: Path) -> list[Path]:
    """The manifests some folders below `place` (of a run, of the runs of a name, of a sweep), at most so many.
    Copies on a tracking server's disk are left out."""
    places = (
        path for depth in range(1, DEPTH) for path in place.glob(f"{'*/' * depth}{manifests.NAME}")
    )
    return list(islice((path for path in places if "artifacts" not in path.parts), MOST))


def own_manifest(source: files.Folder, access: Access) -> dict[str, Any]:
    """The manifest of a snapshot, parsed strictly but not yet validated; decrypted where it is
    encrypted, its signature checked where keys are trusted.

    Raises InputProblem when there is no snapshot, SnapshotInvalid when it is not sound JSON,
    Untrusted without the signature or the key.
    """
    data = raw_manifest(source)
    if access.trusted:
        signature.check(data, _signature(source), access.trusted, _named(source))
    return unsealed(manifests.parse(data, str(source.path)), access, str(source.path))


def signer(source: files.Folder, trusted: tuple[str, ...]) -> str | None:
    """Which of the key files in `trusted` signed the snapshot; None when none is given."""
    if not trusted:
        return None
    return signature.check(raw_manifest(source), _signature(source), trusted, _named(source))


def _named(source: files.Folder) -> str:
    return f"the snapshot at {source.path}"


def _signature(source: files.Folder) -> bytes | None:
    try:
        with files.opened(source, contents.SIGNATURE) as file:
            return file.read(signature.MAX_BYTES + 1)
    except ValueError:
        return None
