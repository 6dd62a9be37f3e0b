"""Read a snapshot's files: all of them verified, every fault found, nothing trusted before that."""

import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness import machine
from harness.errors import InputProblem, SnapshotInvalid
from harness.save import atomic, files, lineage
from harness.snapshot import manifest as manifests
from harness.snapshot.codes import PARTS, Codes, coded_as
from harness.snapshot.digest import digest_bytes, digest_tensor
from harness.snapshot.state import LayerState, Segment, State


def own_manifest(source: Path) -> dict[str, Any]:
    """The manifest at `source`, parsed strictly but not yet validated.

    Raises InputProblem when there is no snapshot, SnapshotInvalid when it is not sound JSON.
    """
    if not source.is_dir():
        if not source.is_symlink():
            atomic.recover(source)
        if source.is_file():
            raise InputProblem(f"snapshot={source} is a file. Give the directory that holds it.")
        if not source.is_dir():
            raise InputProblem(f"snapshot={source}: there is no such directory. Check the path.")
    try:
        with files.opened(source, manifests.NAME) as file:
            return manifests.parse(file.read(manifests.MAX_BYTES + 1), str(source))
    except ValueError as problem:
        if str(problem) == "is missing":
            raise InputProblem(
                f"snapshot={source}: the directory holds no {manifests.NAME}, so it is no snapshot."
            ) from None
        raise SnapshotInvalid(str(source), [f"{manifests.NAME} {problem}"]) from None


class Reading:
    """One pass over the files that `manifest` names. `faults` grows; nothing is raised.

    tensors: name -> tensor; tokenizer: name -> bytes. Use them only when `faults` is empty.
    form: the format's module (None when only `missing` is asked).
    """

    def __init__(self, source: Path, manifest: dict[str, Any], form: Any):
        self.source, self.manifest, self.form = source, manifest, form
        self.faults: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.tokenizer: dict[str, bytes] = {}
        self._folders: dict[str, tuple[Path, str]] = {}  # file -> (folder, how to name the owner)
        self._locate()

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
        folder = self.source.absolute().parent
        for row in self.manifest["lineage"]:
            label = f"inherited from snapshot {row['snapshot'][:16]} ({row['place']})"
            owner = lineage.find(row["snapshot"], folder, row["place"])
            if owner is None:
                self.faults.append(
                    f"{', '.join(row['files'][:3])} is {label}, which is not in {folder} any more"
                )
                continue
            if problem := _not_itself(owner, row["snapshot"]):
                self.faults.append(f"the snapshot {label} {problem}")
            elif not _rows(self.manifest, row["files"]) <= _rows(own_manifest(owner), row["files"]):
                self.faults.append(f"the snapshot {label} describes its files in another way")
            for file in row["files"]:
                self._folders[file] = owner, f" ({label})"

    def _strangers(self) -> None:
        inherited = {f for row in self.manifest["lineage"] for f in row["files"]}
        own = {r["file"] for r in self.manifest["files"]} | {manifests.NAME, "tokenizer"}
        own |= {f"tokenizer/{r['file']}" for r in self.manifest["tokenizer_files"]}
        for name in sorted(files.listing(self.source) - (own - inherited)):
            self.faults.append(f"{name} is not part of this snapshot")

    def _too_large(self) -> bool:
        """Refuse to unpack what cannot fit: a manifest may declare anything."""
        if self.form.MAPPED:
            return False
        declared, there = (
            sum(r["tensor_bytes"] for r in self.manifest["files"]),
            machine.free_memory(),
        )
        if there is None or declared <= there:
            return False
        self.faults.append(
            f"it declares {declared / 2**30:.1f} GiB of tensors, {there / 2**30:.1f} GiB of memory "
            "are free here"
        )
        return True

    def _open(self, name: str) -> "_Opened":
        return _Opened(self, name, self._folders.get(name, (self.source, ""))[0])

    def _fault(self, name: str, problem: object) -> None:
        self.faults.append(f"{name}{self._folders.get(name, (None, ''))[1]} {problem}")

    def _named(self, source: files.Source, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        wanted = {manifests.stored_name(r["name"]): r for r in rows}
        for stored, tensor in self.form.read(source, wanted):
            yield wanted[stored]["name"], tensor

    def _payload(self, row: dict[str, Any], rows: list[dict[str, Any]], pool: Any) -> None:
        name, wanted = row["file"], {r["name"]: r for r in rows}
        with self._open(name) as file:
            if file is None:
                return
            if not self.form.MAPPED or row["covered"] < row["nbytes"]:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            files.check(file, row)
            source = files.Source(file, row["nbytes"], row["tensor_bytes"])
            jobs: list[tuple[str, Future[str | None]]] = []
            for tensor_name, tensor in self._named(source, rows):
                self.tensors[tensor_name] = tensor
                job = pool.submit(_differs, tensor, wanted[tensor_name])
                jobs.append((tensor_name, job))
            for tensor_name, job in jobs:
                if problem := job.result():
                    self._fault(name, f"{tensor_name} {problem}")

    def _tokenizer(self, row: dict[str, Any]) -> None:
        name = f"tokenizer/{row['file']}"
        with self._open(name) as file:
            if file is None:
                return
            if files.size(file) != row["nbytes"]:
                raise ValueError(f"has {files.size(file)} bytes, the manifest says {row['nbytes']}")
            data = file.read(row["nbytes"])
            if digest_bytes(data) != row["digest"]:
                raise ValueError("does not match its digest")
            self.tokenizer[row["file"]] = data


class _Opened:
    """A file of the snapshot; whatever is wrong with it becomes a fault of the reading."""

    def __init__(self, reading: Reading, name: str, folder: Path):
        self.reading, self.name = reading, name
        self._file = files.opened(folder, name)
        self._inside = False

    def __enter__(self) -> Any:
        if self.name in {f for r in self.reading.manifest["lineage"] for f in r["files"]} and (
            self.name not in self.reading._folders
        ):
            return None  # reported when it could not be located
        try:
            file = self._file.__enter__()
        except ValueError as problem:
            self.reading._fault(self.name, problem)
            return None
        self._inside = True
        return file

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> bool:
        if self._inside:
            self._file.__exit__(None, None, None)
        expected = ValueError | EOFError | OSError | MemoryError | RuntimeError
        if isinstance(problem, expected):
            self.reading._fault(self.name, problem)
            return True
        return False


def assemble(manifest: dict[str, Any], reading: Reading) -> State:
    """The State of a verified reading; its parent is this snapshot."""
    tensors, origin = reading.tensors, manifest["id"]
    layers = tuple(
        _layer(entry, tensors, origin) for entry in manifest["documents"]["kv_format"]["layers"]
    )
    return State(
        layers=layers,
        token_ids=tensors["token_ids"],
        attention_mask=tensors["attention_mask"],
        next_position=tensors["next_position"],
        logits=tensors["logits"],
        rng=tensors["rng"],
        documents=MappingProxyType(manifest["documents"]),
        tokenizer_files=MappingProxyType(reading.tokenizer),
        parent=origin,
    )


def _layer(entry: dict[str, Any], tensors: dict[str, torch.Tensor], origin: str) -> LayerState:
    stem = f"layer.{entry['index']}"
    segments = tuple(segment_read(entry, i, tensors, origin) for i in range(len(entry["segments"])))
    recurrent = {part: tensors[f"{stem}.{part}"] for part in entry["recurrent"]}
    return LayerState(
        entry["index"], entry["kind"], segments, entry["seen"], entry["window"],
        MappingProxyType(recurrent), tensors.get(f"{stem}.received"),
    )  # fmt: skip


def segment_read(
    entry: dict[str, Any],
    number: int,
    tensors: dict[str, torch.Tensor],
    origin: str | None = None,
) -> Segment:
    """Segment `number` of the layer that `entry` describes, from `tensors` by name."""
    place, coded = f"layer.{entry['index']}.segment.{number}", coded_as(entry, number)
    if coded is None:
        return Segment(*(tensors[f"{place}.{part}"] for part in lineage.PARTS), origin=origin)
    key, value = (
        Codes.of(
            coded[part],
            {p: t for p in PARTS if (t := tensors.get(f"{place}.{part}_{p}")) is not None},
        )
        for part in ("key", "value")
    )
    return Segment(key, value, tensors[f"{place}.positions"], origin)


def _differs(tensor: torch.Tensor, row: dict[str, Any]) -> str | None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != row["dtype"] or list(tensor.shape) != row["shape"]:
        return f"is {dtype} {list(tensor.shape)}, the manifest says {row['dtype']} {row['shape']}"
    if digest_tensor(tensor, 1) != row["digest"]:
        return "does not match its digest"
    return None


def _not_itself(owner: Path, snapshot: str) -> str | None:
    """What is wrong with the manifest of a snapshot that others refer to."""
    try:
        manifest = own_manifest(owner)
    except (SnapshotInvalid, InputProblem):
        return "has a damaged manifest"
    return None if manifests.identity(manifest) == snapshot else "has an edited manifest"


def _rows(manifest: dict[str, Any], names: list[str]) -> set[tuple[Any, ...]]:
    """The rows of the payload files among `names`, comparable."""
    return {tuple(sorted(r.items())) for r in manifest["files"] if r["file"] in names}
