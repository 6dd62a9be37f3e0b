"""What a manifest must be: its header, its tables (tables.py), and the rules that span rows.

Every rule reports all its failures at once; nothing here raises on a bad manifest.
"""

import re
from typing import Any

from harness.errors import Altered
from harness.snapshot import codes, coherence, documents
from harness.snapshot import manifest as manifests
from harness.snapshot.elements import ELEMENTS
from harness.snapshot.state import LINEAR, State
from harness.snapshot.tables import (
    HEX,
    ElementTable,
    FileTable,
    TensorTable,
    TokenizerTable,
    table_faults,
)

TARGET = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*"
OPTIONAL = {"format_version", "parent", "sampler", "salt", "payload_target"}


def faults(manifest: dict[str, Any]) -> list[str]:
    """Everything wrong with a manifest, as plain sentences; empty when it is sound."""
    version = manifest.get("format_version")
    if type(version) is not int or version < 1:
        return [f"format_version is {version!r}, expected {manifests.FORMAT_VERSION}"]
    if version > manifests.FORMAT_VERSION:
        return [
            f"format_version {version} is newer than this harness reads "
            f"({manifests.FORMAT_VERSION}): upgrade the harness"
        ]
    problems = _header_faults(manifest)
    problems += table_faults("elements", manifest.get("elements"), ElementTable, len(ELEMENTS))
    problems += table_faults("tensors", manifest.get("tensors"), TensorTable, None)
    problems += table_faults("files", manifest.get("files"), FileTable, None)
    if manifest.get("tokenizer_files"):
        problems += table_faults(
            "tokenizer_files", manifest["tokenizer_files"], TokenizerTable, None
        )
    if problems:
        return problems
    problems = _lineage_faults(manifest)
    if problems:
        return problems
    problems = _file_faults(manifest)
    if manifest["id"] != manifests.identity(manifest):
        problems.append(
            Altered("the manifest does not hash to its own id: it was edited or damaged")
        )
    try:
        problems += _element_faults(manifest) + _layer_faults(manifest)
    except Exception as problem:  # hostile documents may break any of the rules
        problems.append(f"documents do not have the expected form: {problem!r}"[:300])
    return problems


def readable(manifest: dict[str, Any]) -> bool:
    """Whether the tables are sound enough to look at the files they name, whatever else is wrong."""
    rules = [("tensors", TensorTable), ("files", FileTable)]
    if manifest.get("tokenizer_files"):
        rules.append(("tokenizer_files", TokenizerTable))
    return (
        manifest.get("format_version") in range(1, manifests.FORMAT_VERSION + 1)
        and not _header_faults(manifest)
        and not any(table_faults(name, manifest.get(name), model, None) for name, model in rules)
        and not _lineage_faults(manifest)
        and not _file_faults(manifest)
    )


def _header_faults(manifest: dict[str, Any]) -> list[str]:
    expected = {
        "id": str, "libraries": dict, "dtype": str, "device": str, "attention_implementation": str,
        "next_position": int, "next_positions": list, "batch": int, "tokens": int,
        "kept_tokens": int, "kv_bytes": int, "payload_format": str, "elements": list,
        "tensors": list, "tokenizer_files": list, "documents": dict, "files": list, "lineage": list,
    }  # fmt: skip
    problems = [
        f"header field '{key}' is missing or not a {kind.__name__}"
        for key, kind in expected.items()
        if type(manifest.get(key)) is not kind
    ]
    problems += documents.frame(manifest)
    if isinstance(manifest.get("documents"), dict):
        problems += documents.faults(manifest["documents"])
    target = manifest.get("payload_target", "a.B")
    if not (isinstance(target, str) and len(target) < 200 and re.fullmatch(TARGET, target)):
        problems.append("header field 'payload_target' is not a module.Class")
    extra = set(manifest) - set(expected) - OPTIONAL
    return problems + [f"header field '{key}' is not part of the format" for key in sorted(extra)]


def _lineage_faults(manifest: dict[str, Any]) -> list[str]:
    """Every inherited file names the snapshot that owns it, which lies in the same folder."""
    problems, taken = [], set()
    known = {r["file"] for r in manifest["files"]}
    known |= {f"tokenizer/{r['file']}" for r in manifest["tokenizer_files"]}
    for row in manifest["lineage"]:
        match row:
            case {"snapshot": str(owner), "place": str(place), "files": [*files]} if (
                re.fullmatch(HEX, owner) and is_place(place) and len(row) == 3
            ):
                if not files:
                    problems.append(f"lineage: nothing is taken from {place}")
                wrong = [f for f in files if not isinstance(f, str) or f not in known or f in taken]
                problems += [
                    f"lineage: {str(f)[:80]} is not a file of this snapshot" for f in wrong
                ]
                taken |= {f for f in files if isinstance(f, str)}
            case _:
                problems.append("lineage: a row is not (snapshot, place, files)")
    return problems


def is_place(name: str) -> bool:
    """Whether `name` is a plain folder name, so that it cannot lead anywhere else."""
    plain = not set(name) & set("/\\\0") and name.isprintable()
    return plain and 0 < len(name) < 256 and name not in (".", "..")


def _file_faults(manifest: dict[str, Any]) -> list[str]:
    """Tensors lie in known files, and a file holds what its tensors add up to."""
    inherited = {f for row in manifest["lineage"] for f in row["files"]}
    sizes: dict[str, int] = {r["file"]: 0 for r in manifest["files"]}
    problems, seen = [], set()
    for row in manifest["tensors"]:
        if row["file"] not in sizes:
            problems.append(
                f"tensor '{row['name']}' lies in {row['file']}, which is not in the files"
            )
            continue
        sizes[row["file"]] += row["nbytes"]
        place = (row["file"], manifests.stored_name(row["name"]))
        if place in seen:
            problems.append(
                f"tensor '{row['name']}' shares its place in {row['file']} with another"
            )
        seen.add(place)
    for row in manifest["files"]:
        stored, declared = sizes[row["file"]], row["tensor_bytes"]
        if stored > declared or (stored != declared and row["file"] not in inherited):
            problems.append(
                f"{row['file']} declares {declared} tensor bytes, they add up to {stored}"
            )
        if row["covered"] > row["nbytes"]:
            problems.append(f"{row['file']} covers more bytes than it has")
    return problems


def _element_faults(manifest: dict[str, Any]) -> list[str]:
    """Element digests follow from the tensors and documents; each row sits in its fixed place."""
    recomputed = manifests.element_rows(manifest["tensors"], manifest["documents"])
    problems = []
    for row, expected in zip(manifest["elements"], recomputed, strict=True):
        if row != expected:
            keys = [k for k in row if row[k] != expected[k]]
            problems.append(f"element {expected['label']} ({expected['name']}): {', '.join(keys)}")
    return [Altered(f"{f} does not follow from what is stored") for f in problems]


def _layer_faults(manifest: dict[str, Any]) -> list[str]:
    """A key and a value per segment, equal lengths, contiguous layers, as many as declared."""
    declared = manifest["documents"]["kv_format"]["layers"]
    rows = {r["name"]: r for r in manifest["tensors"]}
    problems = []
    if [d["index"] for d in declared] != list(range(len(declared))):
        problems.append("layers are not contiguous from 0")
    configured = documents.layers_configured(manifest["documents"])
    if configured not in (None, len(declared)):
        problems.append(f"{len(declared)} layers are stored, the model's config has {configured}")
    expected_names = {"next_position", "token_ids", "attention_mask", "logits", "rng"}
    kv_bytes, newer = 0, False
    for entry in declared:
        stem = f"layer.{entry['index']}"
        if entry["kind"] == LINEAR or entry.get("recurrent"):
            expected_names |= {f"{stem}.{part}" for part in entry["recurrent"]}
        if entry.get("received"):
            expected_names.add(f"{stem}.received")
            newer |= len(rows.get(f"{stem}.received", {"shape": []})["shape"]) == 4
        for number, tokens in enumerate(entry["segments"]):
            place, described = f"{stem}.segment.{number}", codes.coded_as(entry, number)
            if described is not None:
                coded, wrong = codes.segment_faults(place, described, tokens, rows)
                expected_names |= coded
                problems += wrong
                newer = True
                continue
            names = [f"{place}.{p}" for p in ("key", "value", "positions")]
            expected_names |= set(names)
            lengths = [
                rows[n]["shape"][-2 if i < 2 else -1] for i, n in enumerate(names) if n in rows
            ]
            if any(length != tokens for length in lengths):
                problems.append(f"{place}: lengths {lengths}, declared {tokens}")
            if set(names) <= set(rows):
                key, _, positions = (rows[n]["shape"] for n in names)
                newer |= len(positions) == 3
                if positions[:-1] not in (key[:1], key[:2]):
                    problems.append(f"{names[2]} has shape {positions}, the keys {key}")
    for name in sorted(expected_names - set(rows)):
        problems.append(f"tensor '{name}' is declared but has no row")
    for name in sorted(set(rows) - expected_names):
        problems.append(f"tensor '{name}' has a row but is not declared")
    kinds = {f"layer.{d['index']}": d["kind"] for d in declared}
    for name, row in rows.items():
        stem = ".".join(name.split(".")[:2])
        parts = name.split(".")
        if (str(row["layer"]), row["part"]) != (
            parts[1] if parts[0] == "layer" else "-1",
            parts[-1],
        ):
            problems.append(f"tensor '{name}' has layer {row['layer']} and part {row['part']}")
        if row["layer_type"] != kinds.get(stem, "none"):
            problems.append(f"tensor '{name}' has layer_type {row['layer_type']}")
        if row["element"] == 1:
            kv_bytes += row["nbytes"]
        if row["shape"] and name not in ("rng",) and row["shape"][0] != manifest["batch"]:
            problems.append(f"tensor '{name}' has batch {row['shape'][0]}, not {manifest['batch']}")
    if manifest["format_version"] != (needed := 2 if newer else 1):
        problems.append(
            f"format_version is {manifest['format_version']}, the tensors are of {needed}"
        )
    if kv_bytes != manifest["kv_bytes"]:
        problems.append(f"kv_bytes is {manifest['kv_bytes']}, the tensors add up to {kv_bytes}")
    return problems


def state_faults(state: State, manifest: dict[str, Any]) -> list[str]:
    """Header fields that do not follow from the verified `state`, and faulty positions."""
    if problems := coherence.forms(state):
        return problems
    try:
        expected = manifests.header(state)
    except (KeyError, TypeError, AttributeError, StopIteration, RuntimeError) as problem:
        return [f"documents do not have the expected form: {problem!r}"]
    problems = [
        f"header field '{key}' is {str(manifest.get(key))[:80]}, the stored state has {str(value)[:80]}"
        for key, value in expected.items()
        if manifest.get(key) != value
    ]
    return problems + position_faults(state)


def position_faults(state: State) -> list[str]:
    """Positions strictly increase within each layer and stay below `next_position`, and the
    elements agree with each other."""
    return coherence.faults(state)
