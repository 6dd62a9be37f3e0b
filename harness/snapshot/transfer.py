"""K/V on its way to a device: through two page-locked buffers, so that reading a mapped file and the
copy over the bus run at the same time, straight into the tensor that the decoder reads."""

from typing import Any

import torch

BLOCK = 64 << 20  # bytes of each of the two buffers


class Transfer:
    """`to(tensor)` gives the same tensor on `device`; `finish()` waits for what is under way.

    Nothing is mutated, and on the device each tensor is allocated once. staged: whether the blocks
    go through the two buffers; by default where `device` is CUDA and the tensor is not.
    """

    def __init__(self, device: torch.device, block: int = BLOCK, staged: bool | None = None):
        self.device, self.block = device, block
        self.staged = device.type == "cuda" if staged is None else staged
        self._pinned = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._pinned else None
        self._buffers: list[torch.Tensor] = []
        self._free: list[Any] = [None, None]  # per buffer, the event after which it may be filled
        self._turn = 0

    def to(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` on the device, the object itself when it lies there already."""
        if tensor.device == self.device and not (self.staged and not self._pinned):
            return tensor
        if not self.staged or tensor.is_cuda:
            return tensor.to(self.device)
        source = tensor.detach().contiguous()
        target = torch.empty(source.shape, dtype=source.dtype, device=self.device)
        if self._stream is not None:  # the memory may still be read by what ran before
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        there, here = _bytes(target), _bytes(source)
        for start in range(0, here.numel(), self.block):
            self._copy(there[start : start + self.block], here[start : start + self.block])
        return target

    def finish(self) -> None:
        """Every copy has arrived when this returns."""
        if self._stream is not None:
            self._stream.synchronize()

    def _copy(self, there: torch.Tensor, here: torch.Tensor) -> None:
        turn, self._turn = self._turn, 1 - self._turn
        if len(self._buffers) <= turn:
            fresh = torch.empty(self.block, dtype=torch.uint8, pin_memory=self._pinned)
            self._buffers.append(fresh)
        if self._free[turn] is not None:
            self._free[turn].synchronize()
        staged = self._buffers[turn][: len(here)].copy_(here)
        if self._stream is None:
            there.copy_(staged)
            return
        with torch.cuda.stream(self._stream):
            there.copy_(staged, non_blocking=True)
            self._free[turn] = torch.cuda.Event()
            self._free[turn].record(self._stream)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
