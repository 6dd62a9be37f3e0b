"""The decode step with shapes that never change, so that a CUDA device records it once and replays it.

A step of one token is hundreds of small operations, and on a GPU starting them takes longer than
doing them. A CUDA graph starts all at once, but it repeats exactly what it saw: the same addresses and
sizes, and no number that Python read. So the tails are attended to as they lie, with their unused
room, whose position is -1 as padding's is; the new token goes to a slot that the device holds; and
which part may need a mask is decided for as long as the room lasts. When a tail grows, by doubling,
its address changes, and the step is recorded again.

The tails are Memory's own. Steps of this kind and of the other may follow each other in any order, and
whatever reads the tails reads what it always did. Without a recording the same arithmetic runs on any
device, which is how it is tested where there is no GPU; the recording by the tests marked `gpu`.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from harness.attention.parts import Part, Queries, in_window, out_of_sight, visible
from harness.attention.split import split_attention
from harness.cache.memory import Memory

WARM = 2  # runs before recording, in which libraries set up what they must not while recorded

Forward = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]


def recordable(model: Any) -> bool:
    """Whether nothing in a step depends on numbers that Python must read. RoPE that changes its base
    with the length does."""
    rotary = getattr(model.get_decoder(), "rotary_emb", None)
    kinds = getattr(rotary, "rope_type", "default")
    each = kinds.values() if isinstance(kinds, dict) else [kinds]
    return not any("dynamic" in kind or kind == "longrope" for kind in each)


class Captured:
    """Steps of one token per row over `memory`, by a family's `forward(ids, positions, memory)`.

    record: replay a CUDA graph. Otherwise the operations are started one by one.
    """

    def __init__(self, memory: Memory, forward: Forward, record: bool):
        self._memory, self._forward = memory, forward
        self.record = record
        self._room: Room | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: torch.Tensor | None = None

    def serves(self, ids: torch.Tensor) -> bool:
        """Whether `ids` `[rows, new]` is one token per row and the tails have been made."""
        return ids.shape[1] == 1 and all(tail.length for tail in self._memory.tails)

    def step(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, 1, vocab]` of `ids` at `positions`, both `[rows, 1]`. The tails grow by one.
        Raises InputProblem when there is no memory for that."""
        buffers = [tail.reserve(1) for tail in self._memory.tails]
        if self._room is None or not self._room.lies_in(buffers):
            self._graph = self._logits = self._room = None  # free before making anew
            self._room = Room(self._memory, buffers, positions)
        self._room.enter(ids, positions)
        logits = self._replayed(self._room) if self.record else None
        if logits is None:
            logits = self._room.run(self._forward)
        for tail in self._memory.tails:
            tail.length += 1
        self._memory.note(positions)
        return logits

    def _replayed(self, room: "Room") -> torch.Tensor | None:
        """Logits from the recording, made first where there is none; None when it cannot be made."""
        try:
            if self._graph is None:
                self._graph, self._logits = _recorded(
                    lambda: room.run(self._forward), room.ids.device
                )
        except Exception as problem:  # whatever it is: unrecorded, the step is right
            self.record = False
            warnings.warn(
                f"the decode step could not be recorded ({str(problem).splitlines()[0]}). It goes on "
                "unrecorded, which is slower. cache.capture=false does so from the start.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        assert self._logits is not None
        self._graph.replay()
        return self._logits.clone()  # the next replay writes where this one did


class Room:
    """What a family's forward asks for attention, in place of Memory, while the tails stay put.

    memory: its past and windows; buffers: each layer's whole `(key, value)` tail; positions:
    `[rows, 1]` of the first token to be fed. Reads them once (a device synchronization on CUDA).
    """

    def __init__(
        self,
        memory: Memory,
        buffers: list[tuple[torch.Tensor, torch.Tensor]],
        positions: torch.Tensor,
    ):
        self._memory, self._buffers = memory, buffers
        filled, capacity = memory.tails[0].length, buffers[0][0].shape[2]
        for buffer in (b for pair in buffers for b in pair):
            buffer[:, :, filled:] = 0  # unseen, but a NaN there would still spread
        self.ids, self._new = torch.zeros_like(positions), positions.clone()
        self._slot = positions.new_zeros(1)
        self._positions = positions.new_full((len(positions), capacity), -1)
        self._filled = -1
        first, last = int(positions.min()), int(positions.max()) + capacity - filled - 1
        self._queries = Queries(self._new, first, last)  # of every step that the room has space for
        self._layers: list[list[Part]] = []
        shared: dict[tuple[int, int], torch.Tensor] = {}
        for past, (key, value), window in zip(memory.past, buffers, memory.windows, strict=True):
            parts = [
                _within(part, self._queries, window, shared)
                for part in past
                if not out_of_sight(part, self._queries, window)
            ]
            self._layers.append([*parts, Part(key, value, self._positions, -1, last)])
        self._parts: list[list[Part]] = []  # with their masks

    def lies_in(self, buffers: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
        """Whether the tails are still in `buffers`."""
        pairs = zip(self._buffers, buffers, strict=True)
        return all(mine is yours for a, b in pairs for mine, yours in zip(a, b, strict=True))

    def enter(self, ids: torch.Tensor, positions: torch.Tensor) -> None:
        """Bring the next token, `[rows, 1]` both, and what was fed in other ways since the last."""
        filled = self._memory.tails[0].length
        if filled != self._filled:
            assert self._memory.positions is not None
            self._positions[:, :filled] = self._memory.positions
        self._filled = filled + 1
        self.ids.copy_(ids)
        self._new.copy_(positions)
        self._slot.fill_(filled)

    def run(self, forward: Forward) -> torch.Tensor:
        """Logits `[rows, 1, vocab]` of the token that entered. Running it again changes nothing."""
        self._positions.index_copy_(1, self._slot, self._new)
        masks: dict[
            tuple[int, int | None], torch.Tensor | None
        ] = {}  # layers share them, as a rule
        self._parts = []
        for parts, window in zip(self._layers, self._memory.windows, strict=True):
            for part in parts:
                place = (id(part.positions), window)
                if place not in masks:
                    masks[place] = visible(part, self._queries, window)
            self._parts.append(
                [replace(part, seen=masks[id(part.positions), window]) for part in parts]
            )
        return forward(self.ids, self._new, self)

    def append(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put `[rows, kv_heads, 1, head_dim]` of the new token into the layer's tail."""
        for buffer, fresh in zip(self._buffers[layer], (key, value), strict=True):
            buffer.index_copy_(2, self._slot, fresh)

    def attend(self, layer: int, query: torch.Tensor, scale: float) -> torch.Tensor:
        """`Memory.attend`, over the whole tail."""
        window = self._memory.windows[layer]
        return split_attention(query, self._parts[layer], self._queries, scale, window)


def _within(
    part: Part, queries: Queries, window: int | None, shared: dict[tuple[int, int], torch.Tensor]
) -> Part:
    """What the window leaves of a part. Not `uniform`, so that nothing is read back to cut it again;
    layers that have the same positions before have the same tensor of them after."""
    low, high = in_window(part, queries, window)
    left = part.cut(low, high)
    positions = shared.setdefault((id(part.positions), low), left.positions)
    return replace(left, positions=positions, uniform=False)


def _recorded(
    work: Callable[[], torch.Tensor], device: torch.device
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A CUDA graph of `work`, and the tensor that every replay writes its result to."""
    with torch.cuda.device(device):
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                work()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = work()
    return graph, result
