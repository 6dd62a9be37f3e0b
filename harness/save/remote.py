"""Snapshots behind an fsspec URL (`s3://`, `gs://`, `file://`, `memory://`): the extra `remote`.

A snapshot is written locally and verified first, then its files are uploaded under a fresh name
nobody reads yet, the manifest last: until it is there, the place holds no snapshot or the old one.
Reading fetches what the manifest declares, no more, into a private directory and verifies it there.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness import extras
from harness.errors import InputProblem, SnapshotInvalid, Untrusted
from harness.save import atomic, contents, envelope, files, leftovers
from harness.snapshot import manifest as manifests
from harness.snapshot import schema, signature, tables
from harness.snapshot.digest import digest_bytes

_OURS = re.compile(r"(kv|state)-[0-9a-f]{16}\.[a-z0-9.]+|tokenizer/.+|manifest\.json\.sig")


def is_url(place: str | Path) -> bool:
    """Whether `place` is an fsspec URL rather than a local path."""
    return "://" in str(place)


def place(target: str | Path) -> str | Path:
    """What `out=` or `snapshot=` names: a URL as it is, a local path (also `file://`) as a Path."""
    text = str(target)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return text if is_url(text) else Path(target).expanduser()


@contextmanager
def fetched(source: str | Path) -> Iterator[Path]:
    """The snapshot as a local directory: itself, or a private copy that is removed afterwards.

    Raises InputProblem when there is none, SnapshotInvalid when its sizes are not as declared.
    """
    source = place(source)
    if isinstance(source, Path):
        yield source
        return
    above = Path(tempfile.gettempdir())
    leftovers.remove(above)
    folder, lock = atomic.locked(above / "harness-fetched")  # a killed reader's is found again
    try:
        with leftovers.noted(folder):
            try:
                with _plain_errors(source):
                    _fetch(source, folder)
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def fetch_manifest(url: str) -> bytes:
    """The manifest's bytes, bounded. Raises InputProblem when there is no snapshot at `url`."""
    with _plain_errors(url):
        system, root = _system(url)
        return _bounded(system, url, f"{root}/{manifests.NAME}", manifests.MAX_BYTES)


def upload(folder: Path, url: str, overwrite: bool = False) -> None:
    """Put the sound local snapshot in `folder` at `url`, its manifest last and only if no other
    writer was there meanwhile: of two, one wins whole and the other is told.

    Payload files are named after their contents and a tokenizer file is never written over, so
    nothing that another snapshot there needs changes before the new manifest is there. Raises
    InputProblem when the place cannot be written, holds a snapshot that is not to be replaced or
    another tokenizer, or when another writer was faster.
    """
    names = sorted(files.listing(folder) - {manifests.NAME})
    with _plain_errors(url):
        system, root = _system(url)
        old = (
            {p.removeprefix(f"{root}/") for p in system.find(root)}
            if system.exists(root)
            else set()
        )
        before = _version(system, f"{root}/{manifests.NAME}") if manifests.NAME in old else None
        _refuse(url, old, overwrite)
        written = []
        try:
            for name in names:
                once = name.startswith("tokenizer/")
                _write(_send_once if once else _send, system, url, folder / name, f"{root}/{name}")
                written += [] if once else [name]
            send = partial(_send_manifest, before)
            _write(send, system, url, folder / manifests.NAME, f"{root}/{manifests.NAME}")
        except _Raced:
            _remove_lost(system, root, set(written) - old)
            raise
        for name in sorted(old - {*names, manifests.NAME}):
            system.rm_file(f"{root}/{name}")


class _Raced(InputProblem):
    """Another writer was faster."""

    def __init__(self, url: str):
        super().__init__(
            f"{url} was written by somebody else meanwhile, and is left as it is. "
            "Choose another out=URL, or replace what is there with overwrite=true."
        )


def _refuse(url: str, old: set[str], overwrite: bool) -> None:
    if foreign := {n for n in old - {manifests.NAME} if not _OURS.fullmatch(n)}:
        raise InputProblem(
            f"{url} holds files that are no snapshot's ({sorted(foreign)[0]}), so it is left "
            "alone. Choose a new out=URL."
        )
    if manifests.NAME in old and not overwrite:
        raise InputProblem(
            f"{url} holds a snapshot already. Choose another out=URL, or replace it with "
            "overwrite=true."
        )


def _write(send: Callable[..., None], system: Any, url: str, source: Path, target: str) -> None:
    """Every object that is written passes here."""
    send(system, url, source, target)


def _send(system: Any, url: str, source: Path, target: str) -> None:
    """One object, which appears whole or not at all."""
    system.put_file(str(source), target)


def _send_once(system: Any, url: str, source: Path, target: str) -> None:
    """An object that is created, or there already with these very contents."""
    data = source.read_bytes()
    if not _created(system, target, data) and system.cat_file(target) != data:
        raise InputProblem(
            f"{url} holds a snapshot with another tokenizer or another key, or one is being written "
            "there, which cannot be replaced in one step. Choose a new out=URL."
        )


def _send_manifest(before: str | None, system: Any, url: str, source: Path, target: str) -> None:
    """The manifest, if the one that is there is still `before` (None: none was)."""
    data = source.read_bytes()
    if before is None:
        if not _created(system, target, data):
            raise _Raced(url)
        return
    if hasattr(system, "call_s3") and before.startswith('"'):
        bucket, key, _ = system.split_path(target)
        try:
            system.call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfMatch=before)
        except OSError as problem:
            if _is_conflict(problem):
                raise _Raced(url) from None
            raise
        system.invalidate_cache(target)
        return
    if (
        _version(system, target) != before
    ):  # no store of this kind has a condition: look just before
        raise _Raced(url)
    system.pipe_file(target, data)


def _created(system: Any, target: str, data: bytes) -> bool:
    """Write a new object; False when there is one. In one step where the store can do that."""
    try:
        system.pipe_file(target, data, mode="create")
    except FileExistsError:
        return False
    except OSError as problem:
        if _is_conflict(problem):
            return False
        raise
    except (TypeError, ValueError, NotImplementedError):  # no such mode
        if system.exists(target):
            return False
        system.pipe_file(target, data)
    return True


def _is_conflict(problem: OSError) -> bool:
    message = f"{problem} {problem.__cause__}"
    return problem.errno == errno.EEXIST or any(
        word in message
        for word in ("PreconditionFailed", "ConditionalRequestConflict", "(412)", "(409)")
    )


def _version(system: Any, path: str) -> str:
    """What tells one version of an object from another."""
    info = system.info(path)
    return str(info.get("ETag") or info.get("etag") or digest_bytes(system.cat_file(path)))


def _remove_lost(system: Any, root: str, names: set[str]) -> None:
    """Remove what this writer put there in vain, unless the winner uses it."""
    with suppress(Exception):
        winner = manifests.parse(system.cat_file(f"{root}/{manifests.NAME}"), root)
        for name in names - contents.names(winner):
            system.rm_file(f"{root}/{name}")


def stored_bytes(url: str) -> int:
    """Bytes of everything under `url`."""
    with _plain_errors(url):
        system, root = _system(url)
        return int(system.du(root))


def _fetch(url: str, folder: Path) -> None:
    system, root = _system(url)
    data = _bounded(system, url, f"{root}/{manifests.NAME}", manifests.MAX_BYTES)
    (folder / manifests.NAME).write_bytes(data)
    manifest = manifests.parse(data, url)
    closed = envelope.is_envelope(manifest)
    if problems := envelope.faults(manifest) if closed else schema.faults(manifest):
        raise SnapshotInvalid(url, problems)
    if manifest["lineage"]:
        raise SnapshotInvalid(
            url, ["it refers to other snapshots; make it self-contained first (save.compact=true)"]
        )
    (folder / "tokenizer").mkdir()
    wanted = [(r["file"], r["nbytes"]) for r in manifest["files"]]
    wanted += [(f"tokenizer/{r['file']}", r["nbytes"]) for r in manifest.get("tokenizer_files", [])]
    for name, nbytes in wanted:
        if not re.fullmatch(r"(tokenizer/)?" + tables.FILE[1:-1], name):
            raise SnapshotInvalid(url, [f"{name[:80]} is no name of a file in a snapshot"])
        if name == contents.SIGNATURE:
            continue
        if not system.exists(f"{root}/{name}"):
            raise SnapshotInvalid(url, [f"{name} is missing"])
        if system.info(f"{root}/{name}")["size"] != nbytes:
            raise SnapshotInvalid(url, [f"{name} does not have the {nbytes} bytes of the manifest"])
        _download(system, f"{root}/{name}", folder / name, nbytes)
    if system.exists(f"{root}/{contents.SIGNATURE}"):
        bundle = _bounded(system, url, f"{root}/{contents.SIGNATURE}", signature.MAX_BYTES)
        (folder / contents.SIGNATURE).write_bytes(bundle)


def _download(system: Any, path: str, target: Path, nbytes: int) -> None:
    """Copy at most `nbytes` bytes, in blocks; whether they are right is verified afterwards."""
    there = system.open(path, "rb", block_size=8 << 20, cache_type="readahead")
    with there, target.open("xb") as here:
        while nbytes > 0 and (block := there.read(min(nbytes, 8 << 20))):
            here.write(block)
            nbytes -= len(block)


def _bounded(system: Any, url: str, path: str, limit: int) -> bytes:
    if not system.exists(path):
        raise InputProblem(f"{url} holds no {manifests.NAME}, so it is no snapshot.")
    if system.info(path)["size"] > limit:
        raise SnapshotInvalid(url, [f"{manifests.NAME} is larger than {limit >> 20} MiB"])
    return system.cat_file(path, start=0, end=limit)


def _system(url: str) -> tuple[Any, str]:
    """The file system (its listings are never cached) and the path within it."""
    import fsspec

    system, path = fsspec.url_to_fs(url, use_listings_cache=False)
    system.invalidate_cache()
    return system, path.rstrip("/")


@contextmanager
def _plain_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (InputProblem, SnapshotInvalid, Untrusted):
        raise
    except ImportError as problem:
        extras.need(extras.BY_SCHEME.get(url.partition("://")[0], "remote"), url)
        raise InputProblem(f"{url} needs a package that is not installed: {problem}.") from None
    except Exception as problem:  # every storage has errors of its own
        what = str(problem).splitlines()[0][:300] if str(problem) else type(problem).__name__
        raise InputProblem(
            f"{url} cannot be reached or written: {what}. Check the URL and the credentials."
        ) from None
