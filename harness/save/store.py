"""State to snapshot directory and back. Written atomically, read only after it has been verified.

A format is one file beside this one with `EXTENSION`, `write` and `read`; everything else (layout,
manifest, digests, atomicity) is this procedure.
"""

from collections import defaultdict
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness.errors import ConfigProblem, InputProblem, SnapshotInvalid, suggestion
from harness.save import atomic
from harness.snapshot import manifest as manifests
from harness.snapshot import schema
from harness.snapshot.digest import digest_bytes, digest_tensor
from harness.snapshot.state import LayerState, Segment, State

_INFRASTRUCTURE = {"__init__", "atomic", "store"}


def names() -> list[str]:
    """Every format: one file each, beside this one."""
    return sorted(
        p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in _INFRASTRUCTURE
    )


def format_named(name: str) -> Any:
    """The module of a format. Raises ConfigProblem for an unknown name."""
    if name not in names():
        raise ConfigProblem(f"save={name} is not a format.{suggestion(name, names())}")
    return import_module(f"harness.save.{name}")


def save(state: State, target: Path, settings: Any) -> dict[str, Any]:
    """Write `state` to the directory `target`; return its manifest. `state` is only read.

    settings: a SaveConfig. The manifest is validated before anything becomes visible.
    Raises InputProblem when the place cannot be written, SnapshotInvalid for a state that breaks
    the manifest's rules.
    """
    form = format_named(settings.name)
    files = {name: _file_of(name, form.EXTENSION) for name, _ in state.tensors()}
    with atomic.directory(Path(target), settings.sync) as folder:
        by_file = defaultdict(list)
        for name, tensor in state.tensors():
            by_file[files[name]].append((name, tensor))
        for file, tensors in by_file.items():
            form.write(folder / file, tensors, settings)
            (folder / file).chmod(0o600)
        described = _write_tokenizer(folder / "tokenizer", state)
        manifest = manifests.build(state, files, described, settings.name)
        found = schema.faults(manifest) + schema.position_faults(state)
        if found:
            raise SnapshotInvalid(f"{target} (about to be written)", found)
        path = folder / manifests.NAME
        path.write_bytes(manifests.dump(manifest))
        path.chmod(0o600)
    return manifest


def load(source: Path) -> tuple[State, dict[str, Any]]:
    """Read the snapshot at `source` after verifying all of it; return the State and its manifest.

    Raises InputProblem when there is none, SnapshotInvalid with every fault found.
    """
    source = Path(source)
    manifest = read_manifest(source)
    where = str(source)
    tensors, found = _read_tensors(source, manifest)
    tokenizer_files, more = _read_tokenizer(source, manifest)
    if found + more:
        raise SnapshotInvalid(where, found + more)
    state = _assemble(manifest, tensors, tokenizer_files)
    if wrong := schema.position_faults(state):
        raise SnapshotInvalid(where, wrong)
    return state, manifest


def read_manifest(source: Path) -> dict[str, Any]:
    """The validated manifest of the snapshot at `source` (no payload is read)."""
    path = source / manifests.NAME
    if not source.is_dir():
        raise InputProblem(f"snapshot={source}: there is no such directory. Check the path.")
    if not path.is_file() or path.is_symlink():
        raise InputProblem(
            f"snapshot={source}: the directory holds no {manifests.NAME}, so it is no snapshot."
        )
    manifest = manifests.parse(path.read_bytes(), str(source))
    if found := schema.faults(manifest):
        raise SnapshotInvalid(str(source), found)
    return manifest


def stored_bytes(source: Path) -> int:
    """Bytes the snapshot takes on disk, all files."""
    return sum(p.stat().st_size for p in Path(source).rglob("*") if p.is_file())


def _file_of(name: str, extension: str) -> str:
    parts = name.split(".")
    if "segment" in parts:
        return f"kv-{int(parts[3]):03d}.{extension}"
    return f"state.{extension}"


def _write_tokenizer(folder: Path, state: State) -> list[dict[str, Any]]:
    folder.mkdir(mode=0o700)
    for name, data in state.tokenizer_files.items():
        path = folder / name
        path.write_bytes(data)
        path.chmod(0o600)
    return [
        {"file": name, "nbytes": len(data), "digest": digest_bytes(data)}
        for name, data in sorted(state.tokenizer_files.items())
    ]


def _read_tokenizer(source: Path, manifest: dict[str, Any]) -> tuple[dict[str, bytes], list[str]]:
    found, files = [], {}
    for row in manifest["tokenizer_files"]:
        path = source / "tokenizer" / Path(str(row["file"])).name
        problem = _not_plain(path)
        if not problem and path.stat().st_size != row["nbytes"]:
            problem = f"has {path.stat().st_size} bytes, the manifest says {row['nbytes']}"
        if not problem:
            files[path.name] = path.read_bytes()
            if digest_bytes(files[path.name]) != row["digest"]:
                problem = "does not match its digest"
        if problem:
            found.append(f"tokenizer/{path.name} {problem}")
    return files, found


def _read_tensors(
    source: Path, manifest: dict[str, Any]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Every tensor of the snapshot, verified, and every fault found on the way."""
    form = format_named(manifest["payload_format"])
    by_file = defaultdict(list)
    for row in manifest["tensors"]:
        by_file[row["file"]].append(row)
    tensors: dict[str, torch.Tensor] = {}
    found = []
    for file, rows in by_file.items():
        if problem := _not_plain(source / file):
            found.append(f"{file} {problem}")
            continue
        wanted = {r["name"]: r for r in rows}
        try:
            for name, tensor in form.read(source / file, rows):
                if problem := _differs(tensor, wanted[name]):
                    found.append(f"{file}: {name} {problem}")
                tensors[name] = tensor
        except (ValueError, EOFError, OSError) as problem:
            found.append(f"{file} cannot be read: {problem}")
    return tensors, found


def _differs(tensor: torch.Tensor, row: dict[str, Any]) -> str | None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != row["dtype"] or list(tensor.shape) != row["shape"]:
        return f"is {dtype} {list(tensor.shape)}, the manifest says {row['dtype']} {row['shape']}"
    if digest_tensor(tensor) != row["digest"]:
        return "does not match its digest"
    return None


def _not_plain(path: Path) -> str | None:
    if path.is_symlink():
        return "is a link, which a snapshot never holds"
    return None if path.is_file() else "is missing"


def _assemble(
    manifest: dict[str, Any], tensors: dict[str, torch.Tensor], files: dict[str, bytes]
) -> State:
    layers = tuple(_layer(entry, tensors) for entry in manifest["documents"]["kv_format"]["layers"])
    return State(
        layers=layers,
        token_ids=tensors["token_ids"],
        attention_mask=tensors["attention_mask"],
        next_position=tensors["next_position"],
        logits=tensors["logits"],
        rng=tensors["rng"],
        documents=MappingProxyType(manifest["documents"]),
        tokenizer_files=MappingProxyType(files),
        parent=manifest["parent"],
    )


def _layer(entry: dict[str, Any], tensors: dict[str, torch.Tensor]) -> LayerState:
    stem = f"layer.{entry['index']}"
    segments = tuple(
        Segment(*(tensors[f"{stem}.segment.{i}.{part}"] for part in ("key", "value", "positions")))
        for i in range(len(entry["segments"]))
    )
    recurrent = {part: tensors[f"{stem}.{part}"] for part in entry["recurrent"]}
    return LayerState(
        entry["index"], entry["kind"], segments, entry["seen"], entry["window"],
        MappingProxyType(recurrent), tensors.get(f"{stem}.received"),
    )  # fmt: skip
