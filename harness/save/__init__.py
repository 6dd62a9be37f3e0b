"""Formats: written atomically, read only after verification. `Format` is the base of your own, with
`tensor_bytes` (a tensor as bytes) and `tensor_of` (bytes as the tensor that a manifest declares)."""

from typing import TYPE_CHECKING

from harness.variants import lazily

if TYPE_CHECKING:
    from harness.save.base import Format, tensor_of
    from harness.snapshot.digest import tensor_bytes

__all__ = ["Format", "tensor_bytes", "tensor_of"]
__getattr__ = lazily(
    Format="harness.save.base",
    tensor_of="harness.save.base",
    tensor_bytes="harness.snapshot.digest",
)
