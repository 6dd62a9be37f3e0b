"""BLAKE3 digests of tensors, bytes and canonical JSON. Nothing here mutates its argument."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from blake3 import blake3

if TYPE_CHECKING:
    import torch


def tensor_bytes(tensor: "torch.Tensor") -> memoryview:
    """The raw little-endian bytes of `tensor`, row-major. No copy for a contiguous CPU tensor."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def digest_bytes(data: "bytes | memoryview", threads: int | None = None) -> str:
    """64 hex digits; unless told how many, threads are used above a megabyte, where they pay."""
    if threads is None:
        threads = blake3.AUTO if len(data) > 1 << 20 else 1
    return blake3(data, max_threads=threads).hexdigest()


def digest_tensor(tensor: "torch.Tensor", threads: int | None = None) -> str:
    """Digest of the raw bytes of `tensor` (dtype and shape are recorded beside it, not hashed)."""
    return digest_bytes(tensor_bytes(tensor), threads)


def digest_stream(file: Any, nbytes: int) -> str:
    """Digest of the next `nbytes` bytes of `file`, read in bounded blocks."""
    hasher = blake3(max_threads=blake3.AUTO if nbytes > 1 << 20 else 1)
    block = memoryview(bytearray(min(nbytes, 4 << 20)))
    while nbytes > 0 and (count := file.readinto(block[: min(nbytes, len(block))])):
        hasher.update(block[:count])
        nbytes -= count
    return hasher.hexdigest()


def canonical(document: Any) -> bytes:
    """The one byte form of a JSON document: sorted keys, no spaces, UTF-8, no NaN or infinity."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode("utf-8", "surrogatepass")


def digest_document(document: Any) -> str:
    """Digest of the canonical form of a JSON document."""
    return digest_bytes(canonical(document))


def digest_named(tensors: "Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]") -> str:
    """One digest over names, dtypes, shapes and bytes, in sorted order of the names."""
    items = tensors.items() if isinstance(tensors, Mapping) else tensors
    return digest_document(
        [[n, str(t.dtype), list(t.shape), digest_tensor(t)] for n, t in sorted(items)]
    )
