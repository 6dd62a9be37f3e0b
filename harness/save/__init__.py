"""Formats: written atomically, read only after verification. `Format` is the base of your own, with
`tensor_bytes` (a tensor as bytes) and `tensor_of` (bytes as the tensor that a manifest declares)."""

from harness.variants import lazily

__getattr__ = lazily(
    Format="harness.save.base",
    tensor_of="harness.save.base",
    tensor_bytes="harness.snapshot.digest",
)
