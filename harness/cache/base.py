"""What every cache implementation promises: a decoder that continues from a State.

The State is only read. A variant supplies `forward`, what the caller handed in, and its new K/V.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch

from harness.attention.kernels.cpu.program import KINDS, available
from harness.cache.memory import Memory
from harness.errors import ConfigProblem, InputProblem, Misfit, UnsupportedModel
from harness.snapshot.digest import digest_named
from harness.snapshot.state import LayerState, Segment, State


@dataclass(frozen=True)
class Fingerprint:
    """An object's length, the identity and version of its tensors, and (on request) their digest.

    Under `no_grad` a tensor's version counter rises with every in-place write, so identity and
    version together prove at no cost that nothing was written; the digest proves it byte by byte.
    """

    length: int
    identity: tuple[tuple[int, int], ...]
    digest: str | None

    @classmethod
    def of(
        cls, length: int, tensors: Iterable[tuple[str, torch.Tensor]], digest: bool
    ) -> "Fingerprint":
        named = list(tensors)
        return cls(
            length,
            tuple((t.data_ptr(), t._version) for _, t in named),
            digest_named(named) if digest else None,
        )


class Decoder(ABC):
    """Continues from `state` one or more tokens at a time.

    loaded: the model; state: read only; settings: a CacheConfig. With `settings.branches` above 1
    every row of the state continues that many ways: row `b * branches + i` is branch i of row b, and
    `self.state` is the state with its rows (never its K/V) repeated.
    Construction raises UnsupportedModel when this implementation cannot serve the model or state.
    """

    def __init__(self, loaded: Any, state: State, settings: Any):
        check_fit(loaded, state)
        self.loaded, self.past, self.settings = loaded, state, settings
        self.branches = settings.branches
        self.state = state.branched(self.branches)
        self.next_position = self.state.next_position.to(loaded.device)
        self.fed: list[torch.Tensor] = []
        self.bytes_copied = 0
        self._logits = self.state.logits
        self._furthest = int(state.next_position.max())
        recurrent = any(layer.recurrent for layer in state.layers)
        # measured now, before a model is lent
        self._one_by_one = recurrent and loaded.one_at_a_time

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed `ids` `[rows, new]` (or `[batch, new]`, the same to every branch); return logits
        `[rows, new, vocab]`. Grows the private tail. Raises InputProblem beyond the model's range."""
        ids = ids.to(self.loaded.device)
        if len(ids) != self.state.batch:
            ids = ids.repeat_interleave(self.branches, 0)
        self._furthest += ids.shape[1]
        limit = self.loaded.max_positions
        if limit is not None and self._furthest > limit:
            raise InputProblem(
                f"position {self._furthest - 1} is beyond the {limit} positions this model has. "
                "Continue fewer tokens, or prune and reindex the state first."
            )
        parts = ids.split(1, 1) if self._one_by_one else (ids,)
        rows = [self._fed(part) for part in parts]
        logits = rows[0] if len(rows) == 1 else torch.cat(rows, 1)
        self._logits = logits[:, -1]
        return logits

    def _fed(self, ids: torch.Tensor) -> torch.Tensor:
        new = torch.arange(ids.shape[1], device=ids.device)
        logits = self.forward(ids, self.next_position[:, None] + new)
        if logits.shape[:-1] != ids.shape:
            raise ConfigProblem(
                f"cache={self.settings.name}: `forward` gave logits of {list(logits.shape)} for ids of "
                f"{list(ids.shape)}; it gives [batch, new, vocab]."
            )
        self.next_position = self.next_position + ids.shape[1]
        self.fed.append(ids)
        return logits

    @abstractmethod
    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Logits `[batch, new, vocab]` of `ids` at absolute `positions`, both `[batch, new]`."""

    @abstractmethod
    def handed_in(self) -> tuple[int, Iterable[tuple[str, torch.Tensor]]]:
        """Length and tensors of the object the caller passed, as they are now."""

    @abstractmethod
    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Key and value `[batch, kv_heads, <= tokens, head_dim]` that layer `index` added."""

    def recurrent(self, index: int) -> dict[str, torch.Tensor]:
        """Recurrent tensors of layer `index` as they are now (linear-attention layers only)."""
        return {}

    @property
    def compiled(self) -> bool:
        """Whether steps run code of the working dtype alone, which no run in float64 reaches."""
        return False

    def crop(self, tokens: int) -> bool:
        """Let go of the last `tokens` that were fed, as assisted decoding does; False where this cache cannot."""
        return False

    def _uncounted(self, tokens: int) -> None:
        """Forget that the last `tokens` were fed."""
        fed = torch.cat(self.fed, dim=1)[:, :-tokens]
        self.fed = [fed] if fed.shape[1] else []
        self.next_position = self.next_position - tokens
        self._furthest -= tokens

    def __init_subclass__(cls, **declared: Any) -> None:
        """A `commit` of its own is checked: the next snapshot is written from what it gives."""
        super().__init_subclass__(**declared)
        if "commit" in vars(cls):
            cls.commit = _keeping(vars(cls)["commit"])  # type: ignore[method-assign]

    @property
    def kv_bytes(self) -> int:
        """Bytes of K/V and recurrent state that this continuation holds now, shared ones once."""
        return self.past.kv_bytes

    def fingerprint(self, digest: bool = False) -> Fingerprint:
        """Fingerprint of what the caller handed in."""
        length, tensors = self.handed_in()
        return Fingerprint.of(length, tensors, digest)

    def mask(self, new: int) -> torch.Tensor | None:
        """`[batch, past + fed + new]` for the library's forward, or None when nothing is padded."""
        past = self.state.attention_mask
        if bool(past.all()):
            return None
        ones = past.new_ones(past.shape[0], sum(f.shape[1] for f in self.fed) + new)
        return torch.cat([past, ones], dim=1)

    def commit(self, branch: int = 0) -> State:
        """A new State: the old segments, untouched and uncopied, and one segment of everything fed
        to `branch` of each row so far."""
        if not self.fed:
            return self.past
        rows = slice(branch, None, self.branches)
        ids = torch.cat(self.fed, dim=1)[rows]
        count = ids.shape[1]
        old = self.past
        ahead = torch.arange(count, device=ids.device)
        positions = old.next_position.to(ids.device)[:, None] + ahead
        layers = tuple(self._committed(layer, positions, rows) for layer in old.layers)
        mask = torch.cat([old.attention_mask.to(ids.device), torch.ones_like(ids)], dim=1)
        state = replace(
            old,
            token_ids=torch.cat([old.token_ids.to(ids.device), ids], dim=1),
            attention_mask=mask,
            next_position=self.next_position[rows],
            logits=self._logits[rows].clone(),
        )
        return state.with_layers(layers)

    def _committed(self, layer: LayerState, positions: torch.Tensor, rows: slice) -> LayerState:
        seen = layer.seen + positions.shape[1] if layer.seen else 0
        recurrent = {k: t[rows] for k, t in self.recurrent(layer.index).items()} or layer.recurrent
        added = self.new_kv(layer.index, positions.shape[1]) if layer.segments else None
        if added is None:
            return replace(layer, seen=seen, recurrent=recurrent, received=None)
        self._check_added(layer, added, positions.shape[1])
        key, value = (t[rows] for t in added)
        fresh = Segment(key, value, positions[:, positions.shape[1] - key.shape[2] :].contiguous())
        grown = replace(
            layer,
            segments=(*layer.segments, fresh),
            seen=seen,
            recurrent=recurrent,
            received=None,
        )
        return grown if layer.window is None else ending(grown, layer.window - 1)

    def _check_added(self, layer: LayerState, added: Any, tokens: int) -> None:
        """Raise ConfigProblem for what `new_kv` may not give."""
        first = layer.segments[0]
        least = tokens if layer.window is None else min(tokens, layer.window - 1)
        for part, new, old in zip(("key", "value"), added, (first.key, first.value)):
            wanted = (self.state.batch, old.shape[1], old.shape[3])
            if (*new.shape[:2], *new.shape[3:]) != wanted or not least <= new.shape[2] <= tokens:
                raise ConfigProblem(
                    f"cache={self.settings.name}: `new_kv` gave a {part} of {list(new.shape)} for the {tokens} "
                    f"tokens that layer {layer.index} was fed; it gives "
                    f"{[wanted[0], wanted[1], tokens, wanted[2]]}."
                )


def _keeping(commit: Callable[..., State]) -> Callable[..., State]:
    """`commit`, which raises ConfigProblem where the State it gives has lost or changed what the past held."""

    @wraps(commit)
    def call(self: Decoder, *args: Any, **kwargs: Any) -> State:
        grown, past = commit(self, *args, **kwargs), self.past
        if not isinstance(grown, State) or grown is past:
            return grown
        layers = zip(past.layers, grown.layers, strict=False)
        wrong = [old.index for old, new in layers if not _kept(old, new, past.next_position[0])]
        if wrong or len(grown.layers) != len(past.layers):
            raise ConfigProblem(
                f"cache={self.settings.name}: `commit` gave other keys and values of the past in layer "
                f"{', '.join(map(str, wrong)) or len(grown.layers)}; a new State holds the old segments as they "
                "are, and one more of what was fed. Give what `super().commit()` gives."
            )
        return grown

    return call


def _kept(old: LayerState, new: LayerState, following: torch.Tensor) -> bool:
    """Whether `new` begins with what `old` held, of a window with the end of it."""
    if not old.segments or not new.segments:
        return bool(old.segments) == bool(new.segments)
    places = new.positions.flatten(0, -2)[0]
    count = int((places < following.to(places.device)).sum())
    if count > old.kept or (new.window is None and count < old.kept):
        return False
    return all(
        torch.equal(mine[:, :, :count], theirs[:, :, old.kept - count :])
        for mine, theirs in ((new.key, old.key), (new.value, old.value))
    )


class ReadOnlyDecoder(Decoder):
    """Reads the State where it lies and keeps new K/V in tails of its own (manual, view)."""

    def __init__(self, loaded: Any, state: State, settings: Any):
        super().__init__(loaded, state, settings)
        self.memory = Memory(state, branches=self.branches)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """As of every decoder; a step that fails half-way, or is interrupted, leaves no trace."""
        mark, furthest, fed = self.memory.mark(), self._furthest, len(self.fed)
        position = self.next_position
        try:
            logits = super().step(ids)
        except BaseException:
            self.memory.rewind(mark)
            self._furthest, self.next_position = furthest, position
            del self.fed[fed:]
            raise
        self.bytes_copied = self.memory.bytes_copied
        return logits

    def handed_in(self) -> tuple[int, Iterable[tuple[str, torch.Tensor]]]:
        tensors = (t for layer in self.past.layers for t in layer.tensors())
        return max((layer.seen for layer in self.past.layers), default=0), tensors

    @property
    def compiled(self) -> bool:
        dtype = self.loaded.dtype
        return self.loaded.device.type == "cpu" and dtype in KINDS and available()

    @property
    def kv_bytes(self) -> int:
        return self.past.kv_bytes + sum(tail.nbytes for tail in self.memory.tails)

    def new_kv(self, index: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        tail = self.memory.tails[index]
        return (tail.key, tail.value) if tail.length else None


def check_fit(loaded: Any, state: State) -> None:
    """Raise UnsupportedModel with everything in which `state` and the loaded model do not fit."""
    config = loaded.text_config
    faults = []
    layers = getattr(config, "num_hidden_layers", len(state.layers))
    if len(state.layers) > layers:
        faults.append(f"the state has {len(state.layers)} layers, the model {layers}")
    dtypes = {s.key.dtype for layer in state.layers for s in layer.segments}
    if dtypes - {loaded.dtype}:
        shown = ", ".join(sorted(str(d).removeprefix("torch.") for d in dtypes))
        faults.append(f"its K/V is {shown}, the model {str(loaded.dtype).removeprefix('torch.')}")
    places = {s.key.device.type for layer in state.layers for s in layer.segments}
    if places - {loaded.device.type}:
        faults.append(f"its K/V is on {', '.join(sorted(places))}, the model on {loaded.device}")
    if faults:
        raise UnsupportedModel(
            f"this state does not fit the loaded model: {'; '.join(faults)}. "
            "Load the model it was captured from, with the same dtype and device."
        )


def check_complete(layer: LayerState, window: int | None) -> None:
    """Raise UnsupportedModel when a layer let go of tokens that the model would still look at.
    window: what the model's attention looks back on, None for everything."""
    if layer.window is None or layer.seen < layer.window:  # it let go of nothing
        return
    if window is None or window > layer.window:
        raise UnsupportedModel(
            f"layer {layer.index} was captured with a window of {layer.window} tokens (the library "
            "reads it from the config), but this model's attention looks further back: what it "
            "needs was never kept. Remove sliding_window from the model's config and capture again."
        )


def heads_of(config: Any) -> tuple[int, int]:
    """`(kv_heads, head_dim)` as the config of a plain model says."""
    heads = config.num_attention_heads
    wide = getattr(config, "head_dim", None) or config.hidden_size // heads
    return getattr(config, "num_key_value_heads", None) or heads, wide


def check_heads(state: State, wanted: tuple[int, int]) -> None:
    """Raise Misfit when the K/V of `state` are not `wanted`, (kv_heads, head_dim)."""
    for layer in state.layers:
        for segment in layer.segments:
            shape = (segment.key.shape[1], segment.key.shape[3])
            if shape != wanted:
                raise Misfit(
                    f"layer {layer.index} of this state has {shape[0]} KV heads of {shape[1]}, the "
                    f"model {wanted[0]} of {wanted[1]}. Load the model it was captured from."
                )


def ending(layer: LayerState, tokens: int) -> LayerState:
    """`layer` with no more than its last `tokens` tokens, as views."""
    drop, kept = layer.kept - tokens, []
    for segment in layer.segments:
        cut = min(max(drop, 0), segment.tokens)
        drop -= cut
        if cut < segment.tokens:
            kept.append(segment.cut(cut, segment.tokens))
    return replace(layer, segments=tuple(kept))
