"""Snapshots behind an fsspec URL (`s3://`, `gs://`, `file://`, `memory://`): the extra `remote`.

A snapshot is written locally and verified first, then its files are uploaded under a fresh name
nobody reads yet, the manifest last: until it is there, the place holds no snapshot or the old one.
Reading fetches what the manifest declares, no more, into a private directory and verifies it there.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import extras
from harness.errors import InputProblem, SnapshotInvalid
from harness.snapshot import manifest as manifests
from harness.snapshot import schema

_OURS = re.compile(r"(kv|state)-[0-9a-f]{16}\.[a-z0-9.]+|tokenizer/.+")


def is_url(place: str | Path) -> bool:
    """Whether `place` is an fsspec URL rather than a local path."""
    return "://" in str(place)


def place(given: str | Path) -> str | Path:
    """What `out=` or `snapshot=` names: a URL as it is, a local path (also `file://`) as a Path."""
    text = str(given)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return text if is_url(text) else Path(given).expanduser()


@contextmanager
def fetched(source: str | Path) -> Iterator[Path]:
    """The snapshot as a local directory: itself, or a private copy that is removed afterwards.

    Raises InputProblem when there is none, SnapshotInvalid when its sizes are not as declared.
    """
    source = place(source)
    if isinstance(source, Path):
        yield source
        return
    folder = Path(tempfile.mkdtemp(prefix="harness-", dir=None))
    try:
        with _plain_errors(source):
            _fetch(source, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fetch_manifest(url: str) -> bytes:
    """The manifest's bytes, bounded. Raises InputProblem when there is no snapshot at `url`."""
    with _plain_errors(url):
        system, root = _system(url)
        return _bounded(system, url, f"{root}/{manifests.NAME}", manifests.MAX_BYTES)


def upload(folder: Path, url: str, manifest: dict[str, Any]) -> None:
    """Put the sound local snapshot in `folder` at `url`, its manifest last.

    Payload files are named after their contents, so nothing that an older snapshot there needs is
    overwritten before the new manifest is. Raises InputProblem when the place cannot be written.
    """
    with _plain_errors(url):
        system, root = _system(url)
        old = (
            {p.removeprefix(f"{root}/") for p in system.find(root)}
            if system.exists(root)
            else set()
        )
        if manifests.NAME not in old and (foreign := {n for n in old if not _OURS.fullmatch(n)}):
            raise InputProblem(
                f"{url} holds files that are no snapshot ({sorted(foreign)[0]}), so it is left "
                "alone. Choose a new out=URL."
            )
        names = [r["file"] for r in manifest["files"]]
        tokenizer = [f"tokenizer/{r['file']}" for r in manifest["tokenizer_files"]]
        for name in tokenizer if manifests.NAME in old else []:
            if name in old and system.cat_file(f"{root}/{name}") != (folder / name).read_bytes():
                raise InputProblem(
                    f"{url} holds a snapshot with another tokenizer, which cannot be replaced in "
                    "one step. Choose a new out=URL."
                )
        for name in [*names, *tokenizer, manifests.NAME]:
            _send(system, folder / name, f"{root}/{name}")
        for name in sorted(old - {*names, *tokenizer, manifests.NAME}):
            system.rm_file(f"{root}/{name}")


def _send(system: Any, source: Path, target: str) -> None:
    """One object, which appears whole or not at all."""
    system.put_file(str(source), target)


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
    if found := schema.faults(manifest):
        raise SnapshotInvalid(url, found)
    if manifest["lineage"]:
        raise SnapshotInvalid(
            url, ["it refers to other snapshots; make it self-contained first (save.compact=true)"]
        )
    (folder / "tokenizer").mkdir()
    wanted = [(r["file"], r["nbytes"]) for r in manifest["files"]]
    wanted += [(f"tokenizer/{r['file']}", r["nbytes"]) for r in manifest["tokenizer_files"]]
    for name, nbytes in wanted:
        if not system.exists(f"{root}/{name}"):
            raise SnapshotInvalid(url, [f"{name} is missing"])
        if system.info(f"{root}/{name}")["size"] != nbytes:
            raise SnapshotInvalid(url, [f"{name} does not have the {nbytes} bytes of the manifest"])
        _download(system, f"{root}/{name}", folder / name, nbytes)


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
    except (InputProblem, SnapshotInvalid):
        raise
    except ImportError as problem:
        extras.need(extras.BY_SCHEME.get(url.partition("://")[0], "remote"), url)
        raise InputProblem(f"{url} needs a package that is not installed: {problem}.") from None
    except Exception as problem:  # every storage has errors of its own
        what = str(problem).splitlines()[0][:300] if str(problem) else type(problem).__name__
        raise InputProblem(
            f"{url} cannot be reached or written: {what}. Check the URL and the credentials."
        ) from None
