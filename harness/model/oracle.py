"""The float64 oracle: the very modules of the loaded model, computing in float64 over its weights.

No second model is built. The modules are copied, their weights are not; every weight is widened to
float64 when an operation touches it and let go of again, so that one weight at a time exists twice.
What fits in `KEEP` of the free memory stays widened between passes, which makes small models quick.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness import machine
from harness.model import recurrence
from harness.model.pace import TIMED, Pace, reading, widening

KEEP = 0.25  # share of the free memory that may hold widened weights between passes
PATIENCE, NOTICED = 5.0, 1 << 30  # seconds, bytes: what takes more is announced
SURE = 95.0  # seconds; of more than that minutes are told
NARROW = (torch.float32, torch.bfloat16, torch.float16)
LESS = (*NARROW, torch.complex64)
FOREIGN = "a tensor from outside"
EAGER = "eager"  # the library's fused expert kernels have no float64


@dataclass(frozen=True)
class Cost:
    """What work ahead is going to take, at most. seconds: by what was timed so far, see `Pace`.
    nbytes: of memory, beyond what is there already."""

    seconds: float
    nbytes: int

    def __str__(self) -> str:
        memory = f" and up to {machine.human(self.nbytes)} more memory" if self.nbytes else ""
        return f"{self.about}{memory}"

    @property
    def about(self) -> str:
        """The time, no finer than an estimate is."""
        if self.seconds < SURE:
            return f"about {float(f'{self.seconds:.1g}'):.0f} s"
        return f"about {machine.many(round(self.seconds / 60), 'minute')}"

    @property
    def worth_saying(self) -> bool:
        """Whether somebody who waits, or whose memory fills, wants to know before it starts."""
        return self.seconds > PATIENCE or self.nbytes > NOTICED

    def announce(self, tell: Callable[[str], None], work: str = "") -> None:
        """Tell what `work` is going to take, where that is worth knowing."""
        if self.worth_saying:
            tell(f"{work}: {self}" if work else str(self))


class Oracle:
    """Float64 runs of `loaded`. It is run like a `Loaded`: by the same code that feeds a cache, or
    with no cache at all. wide: the class of Loaded whose dtype is float64."""

    def __init__(self, loaded: Any, wide: Any):
        model = loaded.model
        shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
        twin = copy.deepcopy(model, shared)  # modules and configs are copied, weights are not
        for config in _configs(twin):
            if getattr(config, "_experts_implementation", None):
                config._experts_implementation_internal = EAGER
        self.loaded = wide(twin, loaded.tokenizer, loaded.source, 0.0)
        self.loaded.working = self._working = loaded
        self._weights = Widened({key: t for key, t in shared.items() if torch.is_tensor(t)})
        self._pace = Pace()
        self.records: bool | None = None  # whether a pass tells its keys and values, once asked

    @property
    def keeps(self) -> bool:
        """Whether all weights stay widened between passes."""
        return 8 * self.loaded.parameters <= self._weights.room

    @property
    def model(self) -> Any:
        """The copied modules, over the weights of the loaded model."""
        return self.loaded.model

    @property
    def takes_cache(self) -> bool:
        """As the model it is a copy of."""
        return self.loaded.takes_cache

    @property
    def device(self) -> torch.device:
        return self.loaded.device

    @property
    def switch(self) -> int | None:
        """As the loaded model: what was said of it holds here."""
        return self._working.switch

    @contextmanager
    def watched(self) -> Iterator[set[str]]:
        """The set of operations that give less than float64 for float64 while this lasts, a kernel that has none, and
        FOREIGN where a narrower tensor came in that is no weight. What one run narrows loosens no bound of another."""
        before, self._weights.narrowed = self._weights.narrowed, set()
        try:
            yield self._weights.narrowed
        finally:
            self._weights.narrowed = before

    @contextmanager
    def entered(self) -> Iterator[Any]:
        """The Loaded whose every operation is float64 while this lasts: what any decoder takes as its model."""
        with InFloat64(self._weights):
            yield self.loaded

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.loaded.layers

    @property
    def text_config(self) -> Any:
        return self.loaded.text_config

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Any = None,
        keep: int = 0,
    ) -> torch.Tensor:
        """`Loaded.forward` in float64: logits `[batch, new or keep, vocab]`; grows `cache`."""
        start = time.perf_counter()
        with InFloat64(self._weights):
            if recurrence.continues(cache) and ids.shape[1] > 1 and self._working.one_at_a_time:
                once = self.loaded.once
                return recurrence.one_by_one(once, ids, positions, mask, cache, keep)
            logits = self.loaded.once(ids, positions, mask, cache, keep)
        if ids.numel() >= TIMED:
            self._pace.timed(self._operations(ids.numel()), time.perf_counter() - start)
        return logits

    def uncached(self, ids: torch.Tensor, keep: int) -> torch.Tensor:
        """`Loaded.uncached` in float64."""
        with InFloat64(self._weights):
            return self.loaded.uncached(ids, keep)

    def once(self, ids: torch.Tensor, keep: int, cache: Any = None, at: int = 0) -> torch.Tensor:
        """One call of the model, unpadded, from position `at` on; never fed one by one."""
        positions = torch.arange(at, at + ids.shape[1], device=ids.device)[None].expand_as(ids)
        with InFloat64(self._weights):
            return self.loaded.once(ids, positions, None, cache, keep)

    def new_cache(self) -> Any:
        """The library's growing cache for this model, empty; it will hold float64."""
        from transformers import DynamicCache

        return DynamicCache(config=self.loaded.model.config)

    def cost(self, batch: int, tokens: int) -> Cost:
        """What one uncached pass over `[batch, tokens]` is going to take."""
        config = self.loaded.text_config
        hidden = config.hidden_size
        width = max(_widest(config, "intermediate_size", 4 * hidden), hidden)
        heads = _widest(config, "num_attention_heads", 1)
        scores = 2 * 8 * batch * heads * tokens * tokens
        activations = 8 * batch * tokens * (6 * width + config.vocab_size)
        weights = [p.numel() * 8 for p in self.loaded.model.parameters()]
        growth = min(sum(weights), self._weights.room) - self._weights.nbytes
        return Cost(
            self.ahead([batch * tokens]), max(weights) + max(growth, 0) + activations + scores
        )

    def ahead(self, tokens: Sequence[int], like: "Oracle | None" = None) -> float:
        """How long calls of so many `tokens` each are going to take: their sums, and in each of them every weight
        is read; those that are not kept are widened as well. like: of the whole model, where this is a part."""
        device, numbers, timed = self.device, self.loaded.parameters, (like or self)._pace
        working, dtype = (like or self)._working, self._working.dtype
        operations = self._operations(sum(tokens))
        sums = timed.seconds(operations, torch.float64, device)
        if timed.rate is None:
            sums += working.pace.beyond(operations, dtype, device)
        if device.type != "cpu":
            return sums
        lost = max(1 - self._weights.room / max(8 * numbers, 1), 0)
        widened = widening(dtype, str(device)) * (1 + lost * (len(tokens) - 1))
        return sums + numbers * (widened + 2 * reading(torch.float32, str(device)) * len(tokens))

    def _operations(self, tokens: int) -> float:
        return 2.0 * sum(p.numel() for p in self.loaded.model.parameters()) * tokens


class Widened:
    """Weights in float64, kept as long as they fit in `KEEP` of the memory that was free at first.

    weights: by id, the tensors that belong to the model and are never written to. They are held, so
    that no other tensor can take the id of one that the model let go of (a RoPE buffer, say).
    """

    def __init__(self, weights: dict[int, torch.Tensor]):
        self._weights, self._held = weights, {}  # type: ignore[var-annotated]
        self._storages = {t.untyped_storage().data_ptr() for t in weights.values()}
        free = machine.free_memory()
        self.room = int(KEEP * free) if free is not None else 0
        self.nbytes = 0
        self.narrowed: set[str] = set()  # operations that gave less than float64 for float64

    def of(self, tensor: torch.Tensor, given: bool = True) -> torch.Tensor:
        """`tensor` in float64; the same object each time for a weight that is kept. given: to an operation, not by one."""
        if self._weights.get(id(tensor)) is not tensor:
            if given and tensor.untyped_storage().data_ptr() not in self._storages:
                self.narrowed.add(FOREIGN)
            return tensor.double()
        stored = self._held.get(id(tensor))
        if stored is not None and stored[0] == tensor._version:
            return stored[1]
        wide = tensor.detach().double()
        if self.nbytes + wide.nbytes <= self.room:
            self._held[id(tensor)] = (tensor._version, wide)
            self.nbytes += wide.nbytes
        return wide


# what only looks at a tensor or shows a part of it: widening waits for the arithmetic
_VIEWS = {
    "__get__", "__getitem__", "__len__", "__set__", "size", "dim", "numel", "stride", "view", "transpose", "t",
    "permute", "unsqueeze", "squeeze", "chunk", "split", "unbind", "expand", "detach", "embedding",
    "is_floating_point", "is_complex", "data_ptr", "element_size", "is_contiguous", "requires_grad_",
    "__hash__", "__repr__", "__format__", "get_device", "untyped_storage", "storage_offset", "index_select",
}  # fmt: skip
_CASTS = {"float", "half", "bfloat16"}
_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]


class InFloat64(TorchFunctionMode):
    """Every floating-point operation in float64, whatever dtype weights, buffers and code ask for.

    Models upcast norms, softmax and RoPE to float32 by hand, which would be a downcast here, and
    make constants of the weights' dtype: both become float64.
    """

    def __init__(self, weights: Widened):
        super().__init__()
        self._wide, self._narrowed = weights.of, weights.narrowed

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == _DTYPE:  # each access makes another wrapper
            return _swapped(func(*args))
        name = getattr(func, "__name__", "")
        if name in _CASTS and args and torch.is_tensor(args[0]):
            whole = not (args[0].is_floating_point() or args[0].is_complex())  # positions, say
            return args[0].double() if whole else self._widened(args[0])
        if name in _VIEWS:
            out = func(*args, **kwargs)
            return self._made(out) if name in ("embedding", "index_select") else out
        written = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if not (written and args and _narrow(args[0])):  # a copy would be written in its place
            args = self._widened(args)
        kwargs = {k: self._widened(v) for k, v in kwargs.items()}
        if func is torch.full and isinstance((*args, *kwargs.values())[1], float):
            kwargs.setdefault("dtype", torch.float64)  # float64's lowest number fits nothing less
        out = func(*args, **kwargs)
        if _narrow(args[0] if written and args else out, LESS) and _wide([*args, *kwargs.values()]):
            self._narrowed.add(name)
        return out if written else self._made(out)

    def _made(self, out: Any) -> Any:
        """What an operation gave, which may be of torch's default dtype."""
        if isinstance(out, torch.Tensor):
            return self._wide(out, False) if out.dtype in NARROW else out
        if type(out) in (tuple, list):
            return type(out)(map(self._made, out))
        return out

    def _widened(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._wide(value) if value.dtype in NARROW else value
        if isinstance(value, torch.dtype):
            return _swapped(value)
        if type(value) in (tuple, list):
            return type(value)(self._widened(v) for v in value)
        return value


def _swapped(value: Any) -> Any:
    return torch.float64 if value in NARROW else value


def _narrow(value: Any, dtypes: tuple[torch.dtype, ...] = NARROW) -> bool:
    if isinstance(value, tuple | list):
        return any(_narrow(v, dtypes) for v in value)
    return isinstance(value, torch.Tensor) and value.dtype in dtypes


def _wide(values: Any) -> bool:
    """Whether a float64 tensor is among `values`, or in a list among them."""
    return any(
        v.dtype == torch.float64
        if isinstance(v, torch.Tensor)
        else isinstance(v, tuple | list) and _wide(v)
        for v in values
    )


def _widest(config: Any, name: str, otherwise: int) -> int:
    """The largest value of all layers, where a config has one for each."""
    value = getattr(config, name, None)
    return max(value if isinstance(value, list | tuple) else [value or otherwise])


def _configs(model: Any) -> Iterator[Any]:
    """Every config object that a module of `model` reads, once."""
    configs: dict[int, Any] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            configs[id(config)] = config
    yield from configs.values()
