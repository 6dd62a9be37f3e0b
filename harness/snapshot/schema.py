"""Pandera schemas of the manifest's two tables, strict and lazy, and the rules that span rows.

Every rule reports all its failures at once; nothing here raises on a bad manifest.
"""

import re
from math import prod
from typing import Any

import pandas as pd
import pandera.pandas as pa

from harness.snapshot import codes, coherence, documents
from harness.snapshot import manifest as manifests
from harness.snapshot.elements import ELEMENTS
from harness.snapshot.state import LINEAR, State

HEX = r"^[0-9a-f]{64}$"
TARGET = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*"
OPTIONAL = {"format_version", "parent", "sampler", "salt", "payload_target"}
MAX_ROWS = 1 << 18
FILE = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,120}$"
ITEM_BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class ElementTable(pa.DataFrameModel):
    """The 13 elements, each exactly once."""

    number: int = pa.Field(isin=[e.number for e in ELEMENTS], unique=True)
    label: str = pa.Field(isin=[e.label for e in ELEMENTS], unique=True)
    name: str = pa.Field(isin=[e.name for e in ELEMENTS], unique=True)
    kept_as: str = pa.Field(isin=["tensors", "document", "digest"])
    digest: str = pa.Field(str_matches=HEX)

    class Config:
        strict = True
        coerce = False


class TensorTable(pa.DataFrameModel):
    """One row per stored tensor."""

    name: str = pa.Field(unique=True, str_matches=r"^[a-z0-9_.]{1,120}$")
    element: int = pa.Field(isin=[e.number for e in ELEMENTS])
    layer: int = pa.Field(ge=-1, lt=1 << 16)
    part: str = pa.Field(str_matches=r"^[a-z0-9_]{1,60}$")
    layer_type: str = pa.Field(str_matches=r"^[a-z0-9_]{1,60}$")
    dtype: str = pa.Field(isin=list(ITEM_BYTES))
    shape: object
    nbytes: int = pa.Field(ge=0)
    digest: str = pa.Field(str_matches=HEX)
    file: str = pa.Field(str_matches=FILE)

    class Config:
        strict = True
        coerce = False

    @pa.check("shape", name="shape is a list of sizes")
    def _sizes(cls, column: pd.Series) -> pd.Series:
        return column.map(_is_shape)

    @pa.dataframe_check(name="nbytes = shape x dtype")
    def _bytes(cls, table: pd.DataFrame) -> pd.Series:
        return pd.Series(
            [
                _is_shape(r.shape) and r.nbytes == prod(r.shape) * ITEM_BYTES.get(r.dtype, 0)
                for r in table.itertuples()
            ],
            index=table.index,
        )


class FileTable(pa.DataFrameModel):
    """One row per payload file, own or inherited."""

    file: str = pa.Field(unique=True, str_matches=FILE)
    nbytes: int = pa.Field(ge=0, lt=1 << 50)
    tensor_bytes: int = pa.Field(ge=0, lt=1 << 50)
    covered: int = pa.Field(ge=0, lt=1 << 50)
    digest: str = pa.Field(str_matches=HEX)

    class Config:
        strict = True
        coerce = False


class TokenizerTable(pa.DataFrameModel):
    """One row per tokenizer file."""

    file: str = pa.Field(unique=True, str_matches=FILE)
    nbytes: int = pa.Field(ge=0, lt=1 << 50)
    digest: str = pa.Field(str_matches=HEX)

    class Config:
        strict = True
        coerce = False


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 8
        and all(type(v) is int and 0 <= v < 1 << 40 for v in value)
    )


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
    problems += _table_faults("elements", manifest.get("elements"), ElementTable, len(ELEMENTS))
    problems += _table_faults("tensors", manifest.get("tensors"), TensorTable, None)
    problems += _table_faults("files", manifest.get("files"), FileTable, None)
    if manifest.get("tokenizer_files"):
        problems += _table_faults(
            "tokenizer_files", manifest["tokenizer_files"], TokenizerTable, None
        )
    if problems:
        return problems
    problems = _lineage_faults(manifest)
    if problems:
        return problems
    problems = _file_faults(manifest)
    if manifest["id"] != manifests.identity(manifest):
        problems.append("the manifest does not hash to its own id: it was edited or damaged")
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
        and not any(_table_faults(name, manifest.get(name), model, None) for name, model in rules)
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


def _table_faults(name: str, rows: Any, model: Any, count: int | None) -> list[str]:
    if not isinstance(rows, list) or not rows or len(rows) > MAX_ROWS:
        return [f"table '{name}' is not a list of rows"]
    columns = set(model.to_schema().columns)
    if not all(isinstance(r, dict) and set(r) == columns for r in rows):
        return [f"table '{name}' has a row with missing or unknown columns"]
    if count is not None and len(rows) != count:
        return [f"table '{name}' has {len(rows)} rows, expected {count}"]
    try:
        model.validate(pd.DataFrame(rows)[list(columns)], lazy=True)
    except (pa.errors.SchemaErrors, pa.errors.SchemaError) as problem:
        return _failure_cases(name, problem)
    except Exception as problem:  # whatever a hostile cell makes pandas or pandera raise
        return [f"table '{name}' cannot be read: {type(problem).__name__}"]
    return []


def _failure_cases(name: str, problem: Any) -> list[str]:
    cases = getattr(problem, "failure_cases", None)
    if not isinstance(cases, pd.DataFrame):
        return [f"table '{name}': {str(problem)[:200]}"]
    return [
        f"table '{name}', row {'' if pd.isna(case['index']) else int(case['index'])}, "
        f"{case['column']}: {str(case['failure_case'])[:80]} fails {str(case['check'])[:80]}"
        for case in cases.drop_duplicates(["check", "index"]).to_dict("records")
    ]


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
    return [f"{f} does not follow from what is stored" for f in problems]


def _layer_faults(manifest: dict[str, Any]) -> list[str]:
    """A key and a value per segment, equal lengths, contiguous layers, as many as declared."""
    declared = manifest["documents"]["kv_format"]["layers"]
    rows = {r["name"]: r for r in manifest["tensors"]}
    problems = []
    if [d["index"] for d in declared] != list(range(len(declared))):
        problems.append("layers are not contiguous from 0")
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
                names, wrong = codes.segment_faults(place, described, tokens, rows)
                expected_names |= names
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
