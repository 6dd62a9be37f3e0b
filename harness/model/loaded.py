"""A loaded model with its tokenizer, and the jobs of one process sharing it.

`Loaded` is the one object the other rooms receive; they call its methods and never import this room.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from harness import machine
from harness.config import ModelConfig, moved
from harness.model import identity, ledger, recurrence, twin
from harness.model.build import build, origin, resolve_device
from harness.model.ledger import Ledger
from harness.model.oracle import Cost, Oracle
from harness.model.pace import TIMED, Pace
from harness.model.singly import Singly
from harness.model.standing import standing
from harness.model.switch import switch_of
from harness.progress import FEWEST


@dataclass
class Loaded:
    """A model on its device, its tokenizer and where both came from.

    The weights are never written to. `documents` fingerprints them once and remembers it. `origin`:
    what loads them again, see `origin()`.
    """

    model: Any
    tokenizer: Any
    source: dict[str, Any]
    seconds: float
    origin: dict[str, Any] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace, init=False, repr=False)
    _forward_names: frozenset[str] = field(default=frozenset(), repr=False)
    _known: tuple[Any, dict[str, Any]] | None = field(default=None, init=False, repr=False)
    _made: dict[str, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False)
    rehearsed: set[str] = field(
        default_factory=set, init=False, repr=False
    )  # `pipeline/rehearsal.py`
    # how the weights are known without reading them, and how they lay when they were loaded
    _ledger: tuple[Ledger, Any] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        import inspect

        inner = self._inner
        forward = inspect.signature(inner.forward).parameters
        if "input_ids" not in forward:  # put in place of the class's own, which it is to hand on to
            forward = inspect.signature(type(inner).forward).parameters
        self._forward_names = frozenset(forward)

    @property
    def _inner(self) -> Any:
        """The model itself, which adapters hand on."""
        return getattr(self.model, "get_base_model", lambda: self.model)()

    def __repr__(self) -> str:
        """One line: the modules of a model fill pages."""
        kind = str(self.dtype).removeprefix("torch.")
        return (
            f"Loaded({self.source.get('name')}: {type(self.model).__name__}, {self.parameters:,} "
            f"parameters, {kind}, {self.device})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy remembers nothing that was measured of the original."""
        return type(self), (self.model, self.tokenizer, self.source, self.seconds, self.origin)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def text_config(self) -> Any:
        return self.model.config.get_text_config(decoder=True)

    @property
    def max_positions(self) -> int | None:
        """Positions the model was built for, or None when it does not say."""
        return getattr(self.text_config, "max_position_embeddings", None)

    @property
    def documents(self) -> dict[str, Any]:
        """Identity of the weights and config by Big 8+4 element (JSON-able): remembered until a weight
        is written to or replaced, or anything else about the model changes."""
        now = written, *_ = self._now()
        if self._known is None or self._known[0] != now:
            self._known = now, identity.documents(self.model, self._digests(written))
        return self._known[1]

    def _now(self) -> tuple[Any, ...]:
        """What everything derived from the model holds for: how the weights lie, which adapters are
        switched on (without any write), how the rest stands."""
        model = self.model
        return ledger.written(model), identity.adapters(model), standing(model)

    def _digests(self, written: Any) -> dict[str, str]:
        """Digest of every parameter: read off the weights, unless they are as they were loaded and
        the ledger of that load knows them."""
        entry, loaded = self._ledger or (None, None)
        if entry is None or loaded != written:
            return identity.weights(self.model)
        names = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        digests = entry.read(names)
        if not digests:
            digests = identity.weights(self.model)
            if ledger.written(self.model) == loaded:
                entry.write(digests)
        return digests

    @cached_property
    def attention_configs(self) -> list[Any]:
        """Every config object of the model that says which attention its modules use."""
        configs = {id(m.config): m.config for m in self.model.modules() if hasattr(m, "config")}
        return [c for c in configs.values() if hasattr(c, "_attn_implementation_internal")]

    @property
    def oracle(self) -> Oracle:
        """Float64 runs over the same weights, which are widened one at a time as they are touched."""
        made: Oracle = self._derived("oracle", lambda: Oracle(self, Wide))
        return made

    def single(self) -> "Loaded":
        """This model with its weights in float32: a copy that nobody keeps, itself where they are. Raises MemoryError where
        there is no room for it."""
        if self.dtype == torch.float32:
            return self
        free = machine.free_memory()
        if free is not None and 4 * self.parameters > free:
            raise MemoryError("no room for the weights in float32")
        every = (*self.model.parameters(), *self.model.buffers())
        wide = {id(t): _single(t) for t in every}
        return Loaded(copy.deepcopy(self.model, wide), self.tokenizer, self.source, 0.0)

    @property
    def twin(self) -> "Loaded":
        """The first layers of this model, one of each kind at least, with its own class, weights and
        head: it feeds and forgets as the whole does, at a fraction of the price. The model itself where
        the library builds none: weights that count the layers, layers that share others' memory."""

        def make() -> Loaded:
            try:
                short = twin.first_layers(self.model)
            except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):
                return self
            return Loaded(short, self.tokenizer, self.source, 0.0)

        made: Loaded = self._derived("twin", make)
        return made

    def _derived(self, name: str, make: Callable[[], Any]) -> Any:
        """What was made of the model, made anew once the model is another one than it was then."""
        now = self._now()
        if name not in self._made or self._made[name][0] != now:
            self._made[name] = now, make()
        return self._made[name][1]

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def shape(self) -> dict[str, Any]:
        """Its architecture and its size, as far as its configuration says: layers, heads, numbers."""
        told = self.model.config.get_text_config()
        keys = {"layers": "num_hidden_layers", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
                "hidden_size": "hidden_size"}  # fmt: skip
        known = {name: getattr(told, key, None) for name, key in keys.items()}
        sizes = {name: value for name, value in known.items() if isinstance(value, int)}
        kind = type(self._inner).__name__
        return {"architecture": kind, **sizes, "parameters": self.parameters}

    def cost(self, tokens: float) -> Cost:
        """What a forward over `tokens` in all is going to take, by those timed so far."""
        operations = 2.0 * self.parameters * tokens
        return Cost(self.pace.seconds(operations, self.dtype, self.device), 0)

    def ahead(self, tokens: Sequence[int]) -> float:
        """How long calls of so many `tokens` each are going to take, by those timed so far."""
        return self.pace.calls(self.parameters, tokens, self.dtype, self.device)

    def probe(self) -> None:
        """Time a short pass where none was timed yet: what lies ahead is judged by this very model, not by a guess."""
        if self.pace.rate is None:
            ids = torch.zeros((1, FEWEST), dtype=torch.int64, device=self.device)
            start = time.perf_counter()
            float(self.uncached(ids, 1)[0, 0, 0])  # waits for a GPU
            self.pace.timed(2.0 * self.parameters * FEWEST, time.perf_counter() - start)

    @property
    def switch(self) -> int | None:
        """Tokens after which the RoPE factors are others, so that a cache from before must go."""
        return switch_of(self.text_config)

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return int(self.text_config.num_hidden_layers)

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Any = None,
        keep: int = 0,
    ) -> torch.Tensor:
        """The model's own forward. Mutates `cache`, if one is given, as the library does.

        ids, positions: `[batch, new]`; negative positions (padding) are sent as 0.
        mask: `[batch, past + new]`, or None when nothing is padded.
        keep: logits of the last `keep` tokens only; 0 keeps all.
        Returns logits `[batch, new or keep, vocab]`.
        """
        several = cache is not None and ids.shape[1] > 1
        if several and recurrence.continues(cache) and self.one_at_a_time:
            return recurrence.one_by_one(self.once, ids, positions, mask, cache, keep)
        return self.once(ids, positions, mask, cache, keep)

    @property
    def takes_cache(self) -> bool:
        """Whether the forward takes a cache of the library's, under either of its names."""
        return bool(self._forward_names & {"past_key_values", "cache_params"})

    @property
    def hides_arguments(self) -> bool:
        """Whether the forward does not say what it takes, as `lambda *a, **k: ...` does not."""
        return "input_ids" not in self._forward_names

    @cached_property
    def one_at_a_time(self) -> bool:
        """Whether tokens must be fed one by one onto recurrent state; measured on first use."""
        return recurrence.starts_anew(self.oracle)

    def once(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Any = None,
        keep: int = 0,
    ) -> torch.Tensor:
        """One call of the library, whatever it does to recurrent state; see `forward`."""
        wanted = {
            "attention_mask": mask,
            "position_ids": positions.clamp(min=0),
            "past_key_values": cache,
            "use_cache": cache is not None,
        }
        if "past_key_values" not in self._forward_names:  # models that are recurrent throughout
            wanted["cache_params"] = cache
            if recurrence.continues(cache):
                wanted["attention_mask"] = None  # it is applied to the fed tokens, none is padding
        if keep:
            wanted["logits_to_keep"] = keep
        arguments = {k: v for k, v in wanted.items() if k in self._forward_names}
        start = time.perf_counter()
        with torch.no_grad():
            logits = self.model(input_ids=ids, **arguments).logits
        seconds = time.perf_counter() - start
        if ids.numel() >= TIMED and not logits.is_cuda:
            self.pace.timed(2.0 * self.parameters * ids.numel(), seconds)
        elif ids.numel() <= FEWEST and not logits.is_cuda:
            self.pace.stepped(seconds)
        return logits[:, -keep:] if keep else logits

    def uncached(self, ids: torch.Tensor, keep: int) -> torch.Tensor:
        """Logits `[batch, keep, vocab]` of the last `keep` of `ids` `[batch, tokens]`, unpadded, by
        the library alone: no cache, and neither mask nor positions of ours. The yardstick's scale."""
        wanted = {"use_cache": False, "logits_to_keep": keep}
        arguments = {k: v for k, v in wanted.items() if k in self._forward_names}
        with torch.no_grad():
            return self.model(input_ids=ids, **arguments).logits[:, -keep:]

    def singly(self, ids: torch.Tensor, keep: int) -> torch.Tensor:
        """`uncached`, where the products of the last `keep` tokens are taken one by one, see `Singly`."""
        with Singly(ids.shape[1], keep):
            return self.uncached(ids, keep)


def _single(tensor: torch.Tensor) -> torch.Tensor:
    """A weight or a buffer in float32; whole numbers, and what is float32 already, as they are."""
    if not tensor.is_floating_point() or tensor.dtype == torch.float32:
        return tensor
    wide = tensor.detach().float()
    return torch.nn.Parameter(wide, False) if isinstance(tensor, torch.nn.Parameter) else wide


class Wide(Loaded):
    """The model of an oracle, entered: it computes in float64, whatever its weights are stored as."""

    working: Loaded  # how its recurrence is fed is measured on this one

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64

    @property
    def one_at_a_time(self) -> bool:  # type: ignore[override]
        return self.working.one_at_a_time

    @property
    def switch(self) -> int | None:
        return self.working.switch


_MEMORY: dict[str, Loaded] = {}


def load(settings: ModelConfig, dtype: str, device: str) -> Loaded:
    """The model that `settings` (a ModelConfig) declares; jobs of one process share it for as long as
    its files stay as they are.

    Raises InputProblem when the weights cannot be had, ConfigProblem for an unknown architecture.
    """
    folder = moved.place(settings.path) if settings.path else None
    files = ledger.stamps(folder) if folder is not None and folder.exists() else ()
    key = f"{settings} {dtype} {device} {files}"
    if key not in _MEMORY:
        _MEMORY.clear()  # one model at a time: the next sweep point may need the memory
        start = time.perf_counter()
        torch_device = resolve_device(device)
        model, tokenizer, source, entry = build(settings, getattr(torch, dtype), torch_device)
        model.to(torch_device).eval()
        loaded = Loaded(model, tokenizer, source, time.perf_counter() - start)
        if entry is not None:
            loaded._ledger = entry, ledger.written(model)
        loaded.origin = origin(settings, model)
        _MEMORY[key] = loaded
    return _MEMORY[key]
