"""Read a snapshot's files: all of them verified, every fault found, nothing trusted before that."""

import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from harness import blame, machine
from harness.errors import (
    REFERRED,
    STRANGE,
    Altered,
    DigestMismatch,
    HarnessError,
    InputProblem,
    SnapshotInvalid,
    Untrusted,
)
from harness.process import shown
from harness.save import cipher, contents, files, lineage
from harness.save.access import Access
from harness.save.envelope import own_manifest
from harness.save.inmemory import InMemory
from harness.save.mapped import Mapped
from harness.snapshot import manifest as manifests
from harness.snapshot.digest import digest_bytes, digest_tensor


class Reading:
    """One pass over the files that `manifest` names. `faults` grows; nothing is raised.

    tensors: name -> tensor; tokenizer: name -> bytes. Use them only when `faults` is empty.
    form: the format (None when only `missing` is asked). Closes the folders of others
    that it opened when it is left. avoid: folders of others in which something was not sound: a copy
    beside them is read instead, where there is one.
    """

    def __init__(
        self,
        source: files.Folder,
        manifest: dict[str, Any],
        form: Any,
        access: Access,
        avoid: frozenset[Path] = frozenset(),
    ):
        self.source, self.manifest, self.form, self.access = source, manifest, form, access
        self.faults: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.tokenizer: dict[str, bytes] = {}
        self.mapped_files: list[Mapped] = []
        self._inherited = {f for row in manifest["lineage"] for f in row["files"]}
        self._sizes = {r["file"]: r["nbytes"] for r in manifest["files"]}
        self._sizes |= {f"tokenizer/{r['file']}": r["nbytes"] for r in manifest["tokenizer_files"]}
        self._folders: dict[str, tuple[files.Folder, str]] = {}  # file -> (folder, owner's label)
        self._others = ExitStack()
        self._avoid, self._unsound = avoid, set[Path]()
        self._siblings = lineage.Siblings(source.path.absolute().parent)
        self._claimed: dict[Path, str] = {}  # folder of another -> its id
        try:
            self._locate()
        except BaseException:
            self._others.close()
            raise

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, *problem: Any) -> None:
        if any(folder.replaced() for folder, _ in self._folders.values()):
            self.source.stale = True
        self._others.close()

    @property
    def replaceable(self) -> set[Path]:
        """Folders of others in which something is not sound, and that have a copy not tried yet."""
        tried = self._avoid | self._unsound
        return {
            folder
            for folder in self._unsound
            if set(self._siblings.every(self._claimed[folder])) - tried
        }

    def verified(self) -> "Reading":
        """Read and verify everything."""
        self._strangers()
        if self._too_large():
            return self
        rows = defaultdict(list)
        for row in self.manifest["tensors"]:
            rows[row["file"]].append(row)
        with ThreadPoolExecutor(os.cpu_count() or 1, "verify") as pool:
            for file in self.manifest["files"]:
                self._payload(file, rows[file["file"]], pool)
        for row in self.manifest["tokenizer_files"]:
            self._tokenizer(row)
        return self

    def own(self) -> list[str]:
        """Faults of the payload files that lie in this folder itself, read and verified one after the other; those of
        others, and what no file gives back. No more than one file's tensors are held at a time."""
        with ThreadPoolExecutor(os.cpu_count() or 1, "verify") as pool:
            for file in self.manifest["files"]:
                name = file["file"]
                if name in self._inherited:
                    continue
                rows = [row for row in self.manifest["tensors"] if row["file"] == name]
                self._payload(file, rows, pool)
                lost = [row["name"] for row in rows if row["name"] not in self.tensors]
                for tensor in lost if not self.faults else ():
                    self._fault(name, f"{tensor} is not given back")
                self.tensors.clear()
        return self.faults

    def missing(self) -> list[str]:
        """Faults that show without reading: files that are not there or have another size."""
        named = [(r["file"], r) for r in self.manifest["files"]]
        named += [(f"tokenizer/{r['file']}", r) for r in self.manifest["tokenizer_files"]]
        for name, row in named:
            with self._open(name) as file:
                if file is not None and files.size(file) != row["nbytes"]:
                    self._fault(name, "has another size")
        return self.faults

    def mapped(self) -> dict[str, torch.Tensor]:
        """Every tensor, opened but not verified: what mapping alone costs."""
        rows = defaultdict(list)
        for row in self.manifest["tensors"]:
            rows[row["file"]].append(row)
        for row in self.manifest["files"]:
            with self._open(row["file"]) as file:
                if file is not None:
                    source = files.Source(file, row["nbytes"], row["tensor_bytes"])
                    self.tensors.update(self._named(source, rows[row["file"]]))
        return self.tensors

    def _locate(self) -> None:
        """Where each inherited file lies. A snapshot that cannot be found or read is a fault."""
        for row in self.manifest["lineage"]:
            named = f"snapshot {row['snapshot'][:16]} ({row['place']})"
            label = f"{named}, {REFERRED}"
            place = self._place(row["snapshot"], row["place"])
            owner = self._owner(place) if place else None
            if place is None or owner is None:
                self.faults.append(
                    f"{', '.join(row['files'][:3])}: of {named}, which does not lie beside it in {self._siblings.folder}"
                )
                continue
            self._claimed[place] = row["snapshot"]
            if problem := self._not_itself(owner, row):
                self.faults.append(f"{label}, {problem}")
                self._unsound.add(place)
            for file in row["files"]:
                self._folders[file] = owner, f" (in {shown(place)}: {label})"

    def _place(self, snapshot: str, hint: str) -> Path | None:
        """Where the snapshot with this id is read: the first folder that is not to be avoided, else the
        first."""
        if not self._avoid:
            return self._siblings.find(snapshot, hint)
        every = list(self._siblings.every(snapshot, hint))
        return next((place for place in every if place not in self._avoid), (*every, None)[0])

    def _owner(self, place: Path) -> files.Folder | None:
        try:
            return self._others.enter_context(files.Folder(place))
        except ValueError:
            return None

    def _not_itself(self, owner: files.Folder, row: dict[str, Any]) -> str | None:
        """What is wrong with the manifest of a snapshot that this one refers to. It need not be
        signed: this one's own manifest covers every byte that is taken from it."""
        try:
            manifest = own_manifest(owner, replace(self.access, trusted=()))
            if manifests.identity(manifest) != row["snapshot"]:
                return "has an edited manifest"
            if not _rows(self.manifest, row["files"]) <= _rows(manifest, row["files"]):
                return "describes its files in another way"
        except (SnapshotInvalid, InputProblem):
            return "has a damaged manifest"
        except Untrusted:
            return "is encrypted with another key"
        except (KeyError, TypeError, AttributeError, ValueError):
            return "has a damaged manifest"
        return None

    def _strangers(self) -> None:
        expected = (contents.names(self.manifest) | {"tokenizer"}) - self._inherited
        for name in sorted(files.listing(self.source) - expected):
            self.faults.append(f"{name} {STRANGE}")

    def _too_large(self) -> bool:
        """Refuse to unpack what cannot fit: a manifest may declare anything. Counted is what will be
        allocated: the tensors, and once more the largest of them, which is there packed and
        unpacked."""
        if self.form.mapped and not self._copied():
            return False
        sizes = [r["nbytes"] for r in self.manifest["tensors"]]
        needed, there = sum(sizes) + max(sizes), machine.free_memory()
        if there is None or needed <= there:
            return False
        self.faults.append(
            f"it takes {needed / 2**30:.1f} GiB to unpack, {there / 2**30:.1f} GiB of memory are "
            "free here"
        )
        return True

    def _copied(self) -> bool:
        """Whether a mapped format is read into memory all the same."""
        return bool(self.access.key and self.manifest.get("salt")) or not self.mapping

    @cached_property
    def mapping(self) -> bool:
        """Whether files may be mapped: as the job says, else by where they lie."""
        if self.access.map is not None:
            return self.access.map
        return machine.private(self.source.handle)

    def _open(self, name: str) -> "_Opened":
        folder = self._folders.get(name, (self.source, ""))[0]
        key = self.access.key if self.manifest.get("salt") else None
        return _Opened(self, name, folder, key)

    def _fault(self, name: str, problem: object, tensor: str = "") -> None:
        folder, label = self._folders.get(name, (None, ""))
        if folder is not None:
            self._unsound.add(folder.path)
        text = _said(problem) if isinstance(problem, Exception) else problem
        kind = Altered if isinstance(problem, DigestMismatch) else str
        self.faults.append(kind(f"{name}{label}{tensor} {text}"))

    def _named(self, source: files.Source, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        wanted = {manifests.stored_name(r["name"]): r for r in rows}
        for stored, tensor in self.form.read(source, wanted):
            yield wanted[stored]["name"], tensor

    def _payload(self, row: dict[str, Any], rows: list[dict[str, Any]], pool: Any) -> None:
        name, wanted = row["file"], {r["name"]: r for r in rows}
        with self._open(name) as file:
            if file is None:
                return
            mapped = self.form.mapped and self.form.on_disk and not self._copied()
            if not isinstance(file, InMemory):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
                if self.form.mapped and not mapped and files.size(file) == row["nbytes"]:
                    file = InMemory.of(file, row["nbytes"])
            if mapped:  # stamped first, so that an edit while it is verified shows as well
                folder = self._folders.get(name, (self.source, ""))[0]
                self.mapped_files.append(Mapped.of(file, folder.path / name))
            files.check(file, row)
            source = files.Source(file, row["nbytes"], row["tensor_bytes"])
            jobs: list[tuple[str, Future[object | None]]] = []
            for tensor_name, tensor in self._named(source, rows):
                self.tensors[tensor_name] = tensor
                job = pool.submit(_differs, tensor, wanted[tensor_name])
                jobs.append((tensor_name, job))
            for tensor_name, job in jobs:
                if problem := job.result():
                    self._fault(name, problem, f" {tensor_name}")

    def _tokenizer(self, row: dict[str, Any]) -> None:
        name = f"tokenizer/{row['file']}"
        with self._open(name) as file:
            if file is None:
                return
            if files.size(file) != row["nbytes"]:
                raise ValueError(f"has {files.size(file)} bytes, the manifest says {row['nbytes']}")
            data = file.read(row["nbytes"])
            if digest_bytes(data) != row["digest"]:
                raise DigestMismatch
            self.tokenizer[row["file"]] = data


class _Opened:
    """A file of the snapshot; whatever is wrong with it becomes a fault of the reading."""

    def __init__(self, reading: Reading, name: str, folder: files.Folder, key: cipher.Key | None):
        self.reading, self.name, self.key = reading, name, key
        self._file = files.opened(folder, name)
        self._inside = False

    def __enter__(self) -> Any:
        if self.name in self.reading._inherited and self.name not in self.reading._folders:
            return None  # reported when it could not be located
        try:
            file = self._file.__enter__()
        except (ValueError, OSError) as problem:
            self.reading._fault(self.name, problem)
            return None
        self._inside = True
        if self.key is None:
            return file
        try:
            size = self.reading._sizes[self.name]
            return cipher.opened(file, self.key, self.name, size)
        except (ValueError, OSError, MemoryError) as problem:
            self.reading._fault(self.name, _said(problem))
            self._file.__exit__(None, None, None)
            self._inside = False
            return None

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> bool:
        if self._inside:
            self._file.__exit__(None, None, None)
        if isinstance(problem, MISTAKES) and blame.author(problem):
            return False  # of a format from outside, whose word for a file that is not sound is ValueError
        if isinstance(problem, Exception):  # whatever a hostile file makes a library raise
            self.reading._fault(self.name, problem)
            return True
        return False


MISTAKES = (AttributeError, NameError, TypeError, LookupError, ArithmeticError, AssertionError)
_TELLING = (ValueError, EOFError, OSError, RuntimeError, HarnessError)  # they say what is wrong


def _said(problem: Exception) -> str:
    """A sentence for what reading a file raised."""
    if isinstance(problem, MemoryError):
        return "cannot be unpacked: there is not enough memory"
    if isinstance(problem, _TELLING) and str(problem):
        return str(problem)
    return f"cannot be read: {type(problem).__name__} {str(problem)[:120]}".rstrip()


def _differs(tensor: torch.Tensor, row: dict[str, Any]) -> object | None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != row["dtype"] or list(tensor.shape) != row["shape"]:
        return f"is {dtype} {list(tensor.shape)}, the manifest says {row['dtype']} {row['shape']}"
    if digest_tensor(tensor, 1) != row["digest"]:
        return DigestMismatch()
    return None


def _rows(manifest: dict[str, Any], names: list[str]) -> set[tuple[Any, ...]]:
    """The rows of the payload files among `names`, comparable."""
    return {tuple(sorted(r.items())) for r in manifest["files"] if r["file"] in names}
