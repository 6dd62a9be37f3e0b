"""The private tail: K/V of tokens fed after the restore. Grows by doubling, never touches the past."""

import torch

from harness.errors import InputProblem, UnsupportedModel


class Tail:
    """One layer's new keys and values, in buffers of its own.

    Buffers are `[batch, kv_heads, capacity, head_dim]`. `bytes_copied` counts what growing moved;
    doubling makes that at most one copy of the tail per token appended, whatever the past's length.
    """

    def __init__(self, first_capacity: int):
        self._first = first_capacity
        self._key: torch.Tensor | None = None
        self._value: torch.Tensor | None = None
        self.length = 0
        self.bytes_copied = 0

    def append(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Add `[batch, kv_heads, new, head_dim]` tokens. Writes only into this tail's buffers."""
        new = key.shape[2]
        if self._key is not None and key.shape[1::2] != self._key.shape[1::2]:
            raise UnsupportedModel("a layer changed its number of heads or their size midway.")
        self._key = self._room(self._key, key, new)
        self._value = self._room(self._value, value, new)
        self._key[:, :, self.length : self.length + new] = key
        self._value[:, :, self.length : self.length + new] = value
        self.length += new

    def slot(
        self, rows: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One more token, yet to be written: its key and value, `[rows, kv_heads, head_dim]`, views
        into buffers of the same strides."""
        like = torch.empty(rows, kv_heads, 0, head_dim, dtype=dtype, device="cpu")
        self._key, self._value = self._room(self._key, like, 1), self._room(self._value, like, 1)
        if self._key.shape != self._value.shape:  # one of them grew alone, when memory ran out
            more = self._key.shape[2] - self._value.shape[2]
            self._key, self._value = (
                torch.nn.functional.pad(t, (0, 0, 0, max(short, 0)))
                for t, short in ((self._key, -more), (self._value, more))
            )
        self.length += 1
        return self._key[:, :, self.length - 1], self._value[:, :, self.length - 1]

    def reserve(self, new: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for `new` more tokens after some have been appended. Returns the whole buffers, which
        stay the same until the tail grows again; what is beyond `length` means nothing."""
        assert self._key is not None and self._value is not None
        self._key = self._room(self._key, self._key, new)
        self._value = self._room(self._value, self._value, new)
        return self._key, self._value

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, used or not."""
        return sum(b.nbytes for b in (self._key, self._value) if b is not None)

    @property
    def key(self) -> torch.Tensor:
        """`[batch, kv_heads, length, head_dim]`, a view."""
        assert self._key is not None
        return self._key[:, :, : self.length]

    @property
    def value(self) -> torch.Tensor:
        """`[batch, kv_heads, length, head_dim]`, a view."""
        assert self._value is not None
        return self._value[:, :, : self.length]

    def _room(self, buffer: torch.Tensor | None, like: torch.Tensor, new: int) -> torch.Tensor:
        if buffer is not None and self.length + new <= buffer.shape[2]:
            return buffer
        capacity = max(self._first, new)
        while capacity < self.length + new:
            capacity *= 2
        batch, heads, _, head_dim = like.shape
        try:
            larger = like.new_empty(batch, heads, capacity, head_dim)
        except (RuntimeError, MemoryError) as problem:
            raise InputProblem(
                f"the memory for {capacity} new tokens of one layer cannot be had. Continue fewer "
                "tokens, commit and save what there is, or use fewer branches (cache.branches=N)."
            ) from problem
        if buffer is not None and self.length:
            filled = buffer[:, :, : self.length]
            larger[:, :, : self.length] = filled
            self.bytes_copied += filled.nbytes
        return larger
