"""The manifest: what a snapshot directory says about itself, in JSON a person can read.

`id` is the BLAKE3 of the canonical body (everything but `id`), so equal states saved by equal
software have equal ids, and no field can be edited unnoticed.
"""

import json
from collections.abc import Mapping
from typing import Any

from harness.errors import SnapshotInvalid
from harness.snapshot.digest import digest_document, digest_tensor
from harness.snapshot.elements import ELEMENTS
from harness.snapshot.state import State

FORMAT_VERSION = 1
NAME = "manifest.json"
MAX_BYTES = 64 << 20
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


def tensor_rows(state: State, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row per tensor of `state`; `files` maps each stored name to its payload file."""
    kinds = {layer.index: layer.kind for layer in state.layers}
    rows = []
    for name, tensor in state.tensors():
        parts = name.split(".")
        layer = int(parts[1]) if parts[0] == "layer" else -1
        rows.append(
            {
                "name": name,
                "element": _ELEMENT_OF.get(parts[-1], 1),
                "layer": layer,
                "part": parts[-1],
                "layer_type": kinds.get(layer, "none"),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "nbytes": tensor.nbytes,
                "digest": digest_tensor(tensor),
                "file": files[name],
            }
        )
    return rows


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


def build(
    state: State,
    files: Mapping[str, str],
    tokenizer_files: list[dict[str, Any]],
    kv_format: str,
) -> dict[str, Any]:
    """The manifest of `state` as a JSON-able dict, with its id. Does not mutate `state`."""
    rows = tensor_rows(state, files)
    generation = state.documents.get("generation", {})
    body = {
        "format_version": FORMAT_VERSION,
        "parent": state.parent,
        "libraries": state.documents["kv_format"]["libraries"],
        "dtype": str(state.dtype).removeprefix("torch."),
        "device": str(state.device),
        "attention_implementation": state.documents["kv_format"]["attention_implementation"],
        "next_position": int(state.next_position.max()),
        "next_positions": state.next_position.tolist(),
        "batch": state.batch,
        "tokens": state.tokens,
        "kept_tokens": state.kept_tokens,
        "kv_bytes": state.kv_bytes,
        "payload_format": kv_format,
        "sampler": generation.get("sampler"),
        "elements": element_rows(rows, state.documents),
        "tensors": rows,
        "tokenizer_files": tokenizer_files,
        "documents": dict(state.documents),
    }
    return {**body, "id": identity(body)}


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
    """Strict JSON: bounded size and depth, no duplicate keys, no NaN. Raises SnapshotInvalid."""
    if len(data) > MAX_BYTES:
        raise SnapshotInvalid(where, [f"{NAME} is larger than {MAX_BYTES >> 20} MiB"])

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("an object names a key twice")
        return found

    def reject(constant: str) -> None:
        raise ValueError(f"{constant} is not a number")

    try:
        manifest = json.loads(data, object_pairs_hook=unique, parse_constant=reject)
    except (ValueError, RecursionError) as problem:
        raise SnapshotInvalid(where, [f"{NAME} is not valid JSON: {problem}"]) from None
    if not isinstance(manifest, dict):
        raise SnapshotInvalid(where, [f"{NAME} holds no object"])
    return manifest
