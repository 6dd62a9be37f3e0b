"""The manifest: what a snapshot directory says about itself, in JSON a person can read.

`id` is the BLAKE3 of the canonical body (everything but `id`), so equal states saved by equal
software have equal ids, and no field can be edited unnoticed.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from harness import foreign
from harness.errors import SnapshotInvalid
from harness.snapshot.digest import digest_document, digest_tensor
from harness.snapshot.elements import ELEMENTS, MODEL
from harness.snapshot.state import State

FORMAT_VERSION = 2  # the newest that is read; what is written is `version_of` the state
NAME = "manifest.json"
MAX_BYTES, MAX_DEPTH, MAX_DIGITS = 64 << 20, 32, 40
_SEGMENT = re.compile(r"\.segment\.\d+")
HEADER = (
    "format_version",
    "id",
    "parent",
    "libraries",
    "dtype",
    "device",
    "attention_implementation",
    "next_position",
    "next_positions",
    "batch",
    "tokens",
    "kept_tokens",
    "kv_bytes",
)

# stored name (its last part) -> the element it belongs to; anything recurrent is element 1
_ELEMENT_OF = {"positions": 3, "next_position": 3, "token_ids": 4, "attention_mask": 5, "logits": 9, "rng": 13, "received": 13}  # fmt: skip


def element_of(name: str) -> int:
    """The number of the element that a tensor belongs to, by its stored name."""
    return _ELEMENT_OF.get(name.split(".")[-1], 1)


def tensor_row(
    name: str, layer_type: str, dtype: str, shape: list[int], nbytes: int, digest: str, file: str
) -> dict[str, Any]:
    """One row of the table `tensors`. `layer_type` is `none` for what belongs to no layer."""
    parts = name.split(".")
    return {
        "name": name,
        "element": element_of(name),
        "layer": int(parts[1]) if parts[0] == "layer" else -1,
        "part": parts[-1],
        "layer_type": layer_type,
        "dtype": dtype,
        "shape": shape,
        "nbytes": nbytes,
        "digest": digest,
        "file": file,
    }


def stored_name(name: str) -> str:
    """What a tensor is called inside its payload file, which holds one segment per layer."""
    return _SEGMENT.sub("", name)


def element_rows(rows: list[dict[str, Any]], documents: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The 13 elements: each digest covers that element's tensors and its document."""
    table = []
    for element in ELEMENTS:
        tensors = [
            [r["name"], r["dtype"], r["shape"], r["digest"]]
            for r in rows
            if r["element"] == element.number
        ]
        digest = digest_document([tensors, documents.get(element.name)])
        table.append(
            {
                "number": element.number,
                "label": element.label,
                "name": element.name,
                "kept_as": element.kept_as,
                "digest": digest,
            }
        )
    return table


def buffer_row(state: State) -> dict[str, Any]:
    """The row of the element `token_buffer` as a snapshot of `state` in clear has it."""
    ids = state.token_ids
    kind = str(ids.dtype).removeprefix("torch.")
    tensor = tensor_row("token_ids", "none", kind, [*ids.shape], ids.nbytes, digest_tensor(ids), "")
    return next(r for r in element_rows([tensor], state.documents) if r["name"] == "token_buffer")


def model_rows(documents: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of the model alone: of a job that has no one state."""
    return [row for row in element_rows([], documents) if row["name"] in MODEL]


def build(
    state: State,
    tensors: list[dict[str, Any]],
    files: list[dict[str, Any]],
    tokenizer_files: list[dict[str, Any]],
    lineage: list[dict[str, Any]],
    payload_format: str,
    salt: str | None = None,
    payload_target: str | None = None,
) -> dict[str, Any]:
    """The manifest of `state` as a JSON-able dict, with its id. Does not mutate `state`.

    tensors, files, lineage, salt, payload_target: see harness/save/FORMAT.md. The documents name the segments as
    stored.
    """
    body = {
        "format_version": version_of(state),
        "parent": state.parent,
        "device": str(state.device),
        **header(state),
        "payload_format": payload_format,
        "lineage": lineage,
        "files": files,
        "tokenizer_files": tokenizer_files,
        "elements": element_rows(tensors, state.documents),
        "tensors": tensors,
        "documents": dict(state.documents),
    }
    if salt is not None:
        body["salt"] = salt
    if payload_target is not None:
        body["payload_target"] = payload_target
    return {**body, "id": identity(body)}


def version_of(state: State) -> int:
    """The oldest format that can say what `state` holds: 2 where KV heads keep different tokens,
    where attention was recorded head by head, or where keys and values are codes, else 1."""
    received = [la.received for la in state.layers if la.received is not None]
    heads = any(la.per_head for la in state.layers) or any(t.dim() == 4 for t in received)
    return 2 if heads or state.quantized else 1


def header(state: State) -> dict[str, Any]:
    """The header fields that follow from the state itself, so that a reader can check them."""
    layout = state.documents["kv_format"]
    return {
        "libraries": layout["libraries"],
        "dtype": str(state.dtype).removeprefix("torch."),
        "attention_implementation": layout["attention_implementation"],
        "next_position": int(state.next_position.max()),
        "next_positions": state.next_position.tolist(),
        "batch": state.batch,
        "tokens": state.tokens,
        "kept_tokens": state.kept_tokens,
        "kv_bytes": state.kv_bytes,
        "sampler": state.documents.get("generation", {}).get("sampler"),
    }


def identity(body: Mapping[str, Any]) -> str:
    """BLAKE3 of the canonical manifest body, `id` left out."""
    return digest_document({k: v for k, v in body.items() if k != "id"})


def dump(manifest: Mapping[str, Any]) -> bytes:
    """Human-readable JSON, header first, one table row per line."""
    order = [k for k in HEADER if k in manifest]
    order += [k for k in manifest if k not in order]
    lines = []
    for key in order:
        value = manifest[key]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = ",\n".join("    " + json.dumps(v, ensure_ascii=False) for v in value)
            text = f"[\n{inner}\n  ]"
        else:
            text = json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n  ")
        lines.append(f"  {json.dumps(key)}: {text}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8", "surrogatepass")


def parse(data: bytes, where: str) -> dict[str, Any]:
    """Strict JSON: bounded size, depth and numbers, no duplicate keys, no NaN, no infinity.

    Raises SnapshotInvalid.
    """
    if len(data) > MAX_BYTES:
        raise SnapshotInvalid(where, [f"{NAME} is larger than {MAX_BYTES >> 20} MiB"])
    try:
        manifest = foreign.parsed(
            data, foreign.Budget(depth=MAX_DEPTH), object_pairs_hook=_unique, parse_int=_bounded,
            parse_constant=_no_constant, parse_float=_finite,
        )  # fmt: skip
    except ValueError as problem:
        raise SnapshotInvalid(where, [f"{NAME} is not valid JSON: {problem}"]) from None
    if not isinstance(manifest, dict):
        raise SnapshotInvalid(where, [f"{NAME} holds no object"])
    if dump(manifest) != data:
        raise SnapshotInvalid(where, [f"{NAME} is not laid out as it was written: it was edited"])
    return manifest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("an object names a key twice")
    return document


def _no_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _bounded(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(text)
