"""What compiled code is told to do: a program of phases, each some jobs that any thread may take.

A phase begins when all jobs of the one before are done. Its entries say what to read, what to compute
and where to write, as addresses; the program keeps what it was given alive. What is given and made
is float32, the residual stream float64, weights and K/V as they are stored (all of one dtype, float32
or bfloat16). This side knows torch, compiled.py knows the machine, layout.py is what both agree on.
Whoever makes a program asks two things first: `available`, of this machine, and `readable`, of the
tensors.
"""

import time
import warnings
from array import array
from dataclasses import dataclass
from functools import cache
from itertools import product
from struct import pack, unpack
from typing import Any

import torch

from harness import progress
from harness.attention.kernels.cpu import team
from harness.attention.kernels.cpu.layout import (
    AT_ONCE,
    ATTEND,
    FIELDS,
    GIVEN,
    MERGE,
    NORM,
    OUT,
    PIECE,
    PREPARE,
    PROJECT,
)

KINDS = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
SLOWER = "without numba decode steps are slower: pip install 'harness[kernels]'"
_FINE = 2**13  # scores in all, up to which an attention is computed in float64
_UNUSED = (0,) * FIELDS
_compiling = [0.0]  # seconds

Entry = tuple[int, ...]


class Program:
    """Phases in the order in which they are added; nothing runs before `run`."""

    def __init__(self, dtype: torch.dtype):
        self._kind = KINDS[dtype]
        self._phases: list[Entry] = []
        self._entries: list[Entry] = []
        self._rows = self._queries = self._depth = self._jobs = 1
        self._numbers = 0
        self._held: list[Any] = []

    def project(self, inputs: torch.Tensor, *targets: tuple[Any, ...]) -> None:
        """`inputs` `[rows, width]` times stored matrices `[many, width]`, transposed.

        A target is `(out, mode, weight, bias or None, other)`; out: `[rows, many]`, rows at any
        distance, float64 for ADD. GATE: `silu(inputs @ weight.T) * (inputs @ other.T)`.
        """
        rows, width = inputs.shape
        lines: list[Entry] = []
        first = 0
        for out, mode, weight, bias, other in targets:
            many = weight.shape[0]
            lines.append((
                first, PROJECT, inputs.data_ptr(), out.data_ptr(), rows, width, many,
                weight.data_ptr(), weight.stride(0), 0 if bias is None else bias.data_ptr(), mode,
                out.stride(0), 0 if other is None else other.data_ptr(), 0, 0, 0, 0, 0,
            ))  # fmt: skip
            first += -(-many // AT_ONCE)
            self._numbers += many * width * (1 if other is None else 2)
        self._rows = max(self._rows, rows)
        self._held.append((inputs, targets))
        self._phase(first, lines)

    def norm(self, hidden: torch.Tensor, weight: torch.Tensor, epsilon: float, out: Any) -> None:
        """The Llama norm of every row of `hidden` `[rows, width]` float64 into `out` float32."""
        rows, width = hidden.shape
        line = (0, NORM, hidden.data_ptr(), out.data_ptr(), rows, width, 0, weight.data_ptr())
        self._held.append((hidden, weight, out))
        self._phase(rows, [(*line, 0, 0, 0, 0, 0, 0, 0, 0, 0, _bits(epsilon))])

    def prepare(
        self,
        made: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        queries: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        norms: tuple[torch.Tensor, torch.Tensor, float] | None,
    ) -> None:
        """From `made` `[rows, heads + 2 kv_heads, head_dim]`: queries, per head normalized if `norms`
        says so, turned by `turn` (cos and sin, `[rows, head_dim]`) and scaled, into `queries`
        `[base, kv_heads, branches, group, head_dim]`; keys, turned, and values into the slot `key`
        and `value` `[rows, kv_heads, head_dim]`, which lie alike."""
        rows, heads, width = made.shape
        _, kv_heads, branches, _, _ = queries.shape
        query_norm, key_norm, epsilon = norms or (None, None, 0.0)
        addresses = [t.data_ptr() for t in (*turn, key, value)]
        line = (0, PREPARE, made.data_ptr(), queries.data_ptr(), key.stride(0), width,
                heads - 2 * kv_heads, kv_heads, branches, *addresses, key.stride(1), _bits(scale),
                *(0 if t is None else t.data_ptr() for t in (query_norm, key_norm)),
                _bits(epsilon))  # fmt: skip
        self._held.append((made, turn, queries, key, value, norms))
        self._phase(rows, [line])

    def attend(
        self,
        queries: torch.Tensor,
        parts: list[tuple[torch.Tensor, torch.Tensor]],
        out: torch.Tensor,
    ) -> None:
        """Attention of scaled `queries` `[base, kv_heads, branches, group, width]` float32 to every key
        of all `parts`, `[base or rows, kv_heads, tokens, width or depth]`, into `out` `[rows, heads,
        new, depth]` float32, with `group` all the heads and new tokens that share a KV head."""
        base, kv_heads, branches, group, width = queries.shape
        depth, asked = parts[0][1].shape[3], queries.data_ptr()
        tokens, most = sum([key.shape[2] for key, _ in parts]), branches * group
        fine = int(self._kind == "float32" and tokens * base * kv_heads * most <= _FINE)
        pieces = [-(-key.shape[2] // PIECE) * kv_heads * key.shape[0] for key, _ in parts]
        partial = floats(sum(pieces), most, depth + 2)
        lines: list[Entry] = []
        to, first = partial.data_ptr(), 0
        for key, value in parts:
            shared, many = key.shape[0] // base, key.shape[2]
            count, jobs = most // shared, -(-many // PIECE)
            (row, head, step, _), (row_v, head_v, step_v, _) = key.stride(), value.stride()
            at, at_v, size = key.data_ptr(), value.data_ptr(), key.element_size()
            for b, h, branch in product(range(base), range(kv_heads), range(shared)):
                i = b * shared + branch
                lines.append((
                    first, ATTEND, asked, to, count, width, many, at + (i * row + h * head) * size,
                    step, at_v + (i * row_v + h * head_v) * size, step_v,
                    (b * kv_heads + h) * most + branch * count, depth, most, fine, 0, 0, 0,
                ))  # fmt: skip
                first += jobs
            self._numbers += key.numel() + value.numel()
        self._queries = max(self._queries, most)
        self._depth = max(self._depth, depth)
        self._held.append((queries, parts, out, partial))
        self._phase(first, lines)
        merge = (0, MERGE, to, out.data_ptr(), 0, 0, group, kv_heads, branches,
                 len(self._phases) - 1, 0, 0, depth, most, 0, 0, 0, 0)  # fmt: skip
        self._phase(base * kv_heads * most, [merge])

    def run(self) -> None:
        """Do it all, on as many threads as torch uses; returns when all is done."""
        self.ready().run()

    def ready(self) -> "Ready":
        """The program as it is now."""
        began = time.perf_counter()
        function = _runner(self._kind)
        _compiling[0] += time.perf_counter() - began
        sizes = (len(self._phases), self._rows, self._queries, self._depth)
        lines = [(*sizes, *_UNUSED[len(sizes) :]), *self._phases, *self._entries]
        task = array("q", [number for line in lines for number in line])
        return Ready(function, task, self._jobs, self._numbers, self._held)

    def _phase(self, jobs: int, entries: list[Entry]) -> None:
        line = (0, 0, jobs, len(self._entries), len(entries))
        self._phases.append((*line, *_UNUSED[len(line) :]))
        self._entries += entries
        self._jobs = max(self._jobs, jobs)


@dataclass(frozen=True)
class Ready:
    """A program as compiled code reads it. held: the tensors it has the addresses of."""

    function: int
    task: "array[int]"
    jobs: int
    numbers: int
    held: list[Any]

    def run(self) -> None:
        """Do it all. May be called again and again, by several threads too: the task is copied."""
        team.run(self.function, self.task[:], self.jobs, self.numbers)

    def project(self, inputs: torch.Tensor, made: list[torch.Tensor]) -> None:
        """Run a program of one phase of projections with `inputs` and `made` in place of what it was
        made with, all contiguous."""
        task, entry, address = self.task[:], 2 * FIELDS, inputs.data_ptr()
        for out in made:
            task[entry + GIVEN], task[entry + OUT] = address, out.data_ptr()
            entry += FIELDS
        team.run(self.function, task, self.jobs, self.numbers)


def floats(*shape: int) -> torch.Tensor:
    """Room for what is given and made: float32 on the CPU, whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def available() -> bool:
    """Whether programs can run here: Numba is installed, and they get the threads that torch uses.
    Warns, once, where Numba is what is missing."""
    return team.available() and _compiled() is not None


def readable(dtype: torch.dtype, *stored: Any) -> bool:
    """Whether compiled code can read all of `stored`: plain tensors of `dtype` (of no class of their
    own, no codes) on the CPU, each row's numbers one after the other. None is not read."""
    return dtype in KINDS and all(
        tensor is None
        or (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.dtype == dtype
            and tensor.stride(-1) == 1
            and tensor.device.type == "cpu"
        )
        for tensor in stored
    )


@cache
def _runner(kind: str) -> int:
    """The address of the compiled code; making it takes up to a minute, reading it from a cache a moment."""
    compiled = _compiled()
    assert compiled is not None, "nobody asked `available` first"
    with progress.meanwhile("making kernels ready"):
        return int(compiled.runner(kind).address)


@cache
def _compiled() -> Any:
    """The module that compiles, or None where Numba cannot be imported."""
    began = time.perf_counter()
    try:
        with progress.meanwhile("importing Numba"):
            from harness.attention.kernels.cpu import compiled
    except ImportError as problem:
        warnings.warn(f"{SLOWER} ({problem})", RuntimeWarning, stacklevel=4)
        return None
    finally:
        _compiling[0] += time.perf_counter() - began
    return compiled


def compiling() -> float:
    """Seconds for which this process had Numba imported and kernels compiled, or read from their cache:
    no part of what a step costs."""
    return _compiling[0]


def _bits(number: float) -> int:
    return unpack("q", pack("d", number))[0]
