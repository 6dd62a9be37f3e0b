"""`cache=view`: the model's own forward over a past that is only read.

While a forward runs, the library's attention interface knows one more name. The cache object hands
new K/V to the private tail and back to the model unchanged but marked; when the attention function
meets a marked key, it attends to that layer's past and tail. The model's own mask rules are kept as
rules and asked about true positions instead of being drawn as a matrix.

Whatever does not pass through this interface untouched is refused, never guessed: a layer that was
updated but not attended to, keys changed on the way, an argument of unknown meaning. Nothing is
registered at import, and nothing stays registered after a forward.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from math import inf
from threading import Lock
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, causal_mask_function
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness.attention.parts import by_head
from harness.cache import library
from harness.cache.base import ReadOnlyDecoder, check_complete
from harness.cache.memory import Memory
from harness.cache.projections import Streamed, is_plain, streaming
from harness.errors import HarnessError, UnsupportedModel
from harness.snapshot.state import LayerState, State, aligned

NAME = "harness_view"
MARK = "_harness_layer"  # on keys and values that the cache handed out: their layer
_ONE_AT_A_TIME = Lock()  # what is registered and lent belongs to the process and to the model

# arguments that an attention function may be given without changing what it computes
_HARMLESS = {
    "dropout", "output_attentions", "output_hidden_states", "use_cache", "position_ids", "return_dict",
    "cache_position", "past_key_values", "position_embeddings", "is_causal", "output_router_logits",
    "num_items_in_batch", "logits_to_keep", "layer_idx", "sliding_window", "training", "deterministic",
}  # fmt: skip


class View(ReadOnlyDecoder):
    """Reads the State, writes only its own tail. Raises UnsupportedModel, at the latest when the
    first token is fed, for a model whose attention does not pass through the interface."""

    def __init__(self, loaded: Any, state: State, settings: Any):
        super().__init__(loaded, state, settings)
        padding = (state.attention_mask == 0).sum(1).repeat_interleave(self.branches)
        self._rules = Rules(self.memory, padding.to(loaded.device))
        self._cache = self._library_cache()
        self._configs = loaded.attention_configs

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.memory.begin(positions)
        self._rules.begin()
        try:
            with _ONE_AT_A_TIME, registered(self._configs), streaming(self._linears):
                logits = self.loaded.forward(ids, positions, self.mask(ids.shape[1]), self._cache)
        except HarnessError:
            raise
        except Exception as problem:
            first = (str(problem).strip() or type(problem).__name__).splitlines()[0][:160]
            raise self._refusal(f"its forward fails there ({first})") from problem
        missed = [layer.index for layer in self._cache.layers if getattr(layer, "waiting", False)]
        if missed:
            raise self._refusal(
                f"layers {missed[:4]} do their attention outside the library's attention interface"
            )
        return logits

    @cached_property
    def _linears(self) -> list[Streamed]:
        """The model's linear layers, to be read streamed where that is worth it."""
        latest: list[Any] = [None, None]
        modules = self.loaded.model.modules() if self.loaded.device.type == "cpu" else []
        return [Streamed(module, latest) for module in modules if is_plain(module)]

    def recurrent(self, index: int) -> dict[str, torch.Tensor]:
        return library.recurrent_of(self._cache.layers[index])

    def _library_cache(self) -> Any:
        """The library's cache for this model, its attention layers replaced by read-only ones."""
        cache = DynamicCache(config=self.loaded.model.config)
        if len(cache.layers) != len(self.past.layers):
            counts = f"{len(cache.layers)} layers, the state {len(self.past.layers)}"
            raise self._refusal(f"its cache has {counts}")
        for index, (old, layer) in enumerate(zip(cache.layers, self.past.layers, strict=True)):
            if layer.segments and layer.recurrent:
                raise self._refusal(f"layer {index} has attention and recurrence in one")
            if layer.recurrent:
                if self.branches > 1:
                    raise self._refusal("recurrent layers have no past that branches could share")
                library.fill(old, layer)
            elif layer.segments:
                if type(old).__name__ not in ("DynamicLayer", "DynamicSlidingWindowLayer"):
                    raise self._refusal(f"layer {index} is a {type(old).__name__}")
                cache.layers[index] = ReadOnlyLayer(layer, self.memory, self._rules)
        return cache

    def _refusal(self, why: str) -> UnsupportedModel:
        kind = self.loaded.text_config.model_type
        return UnsupportedModel(
            f"cache=view cannot serve '{kind}': {why}. Use cache=cloned, which serves every model."
        )


class ReadOnlyLayer(CacheLayerMixin):
    """What the model sees in place of a library cache layer: lengths of the past, never its tensors."""

    def __init__(self, layer: LayerState, memory: Memory, rules: "Rules"):
        super().__init__()
        self.index, self.memory, self.rules = layer.index, memory, rules
        self.is_sliding = layer.window is not None
        self._state, self._checked = layer, False
        self._seen, self._kept = layer.seen, layer.kept
        self.is_initialized = True
        self.waiting = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None: ...

    def update(self, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Keep the new K/V in the tail; hand them back marked with the layer they belong to."""
        self.memory.append(self.index, key, value)
        self.waiting = True
        key, value = key.view(key.shape), value.view(value.shape)
        for marked in (key, value):
            setattr(marked, MARK, self)
        return key, value

    def check(self, mask: Any, window: int | None) -> None:
        """Raise UnsupportedModel, once, when the model looks at tokens that this layer let go of."""
        if self._checked:
            return
        self._checked = True
        if isinstance(mask, Rule):
            limit = self._state.window
            if limit is not None and self._seen >= limit:
                last, none = (
                    torch.tensor([[[[self._seen]]]]),
                    torch.zeros(1, 1, 1, 1, dtype=torch.int64),
                )
                further = bool(mask.allows(none, none, last, last - limit).all())
                check_complete(self._state, None if further else limit)
        elif mask is None:
            check_complete(self._state, window)

    def get_seq_length(self) -> int:
        return self._seen + self.memory.tails[self.index].length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._kept + self.memory.tails[
            self.index
        ].length + query_length, self._seen - self._kept

    def get_max_length(self) -> int:
        return -1


class Rule:
    """A mask that was not drawn: the model's own rule, to be asked about true positions."""

    def __init__(self, allows: Callable[..., Any]):
        self.allows = allows

    def __getitem__(self, _: Any) -> "Rule":
        return self  # models cut masks to the length of the keys, which a rule does not need


class Rules:
    """The masks of one step, each drawn at most once for all the layers that share it."""

    def __init__(self, memory: Memory, padding: torch.Tensor):
        self._memory, self._padding = memory, padding
        self._drawn: dict[Any, torch.Tensor | None] = {}

    def begin(self) -> None:
        self._drawn.clear()

    def bias(self, rule: Rule, layer: int, heads: int) -> torch.Tensor | None:
        """0 where `rule` allows a key and -inf where it does not, `[rows, 1 or heads, new, tokens]`;
        None when it allows whatever causality allows. Rules count padding, positions do not."""
        if rule.allows is causal_mask_function:
            return None
        parts = self._memory.parts(layer)
        known = (rule, tuple((p.positions.data_ptr(), p.tokens) for p in parts))
        if known not in self._drawn:
            self._drawn[known] = self._draw(rule, parts, heads)
        return self._drawn[known]

    def _draw(self, rule: Rule, parts: list[Any], heads: int) -> torch.Tensor | None:
        assert self._memory.queries is not None
        new = self._memory.queries.positions
        rows = len(new)
        parted = [p.positions.repeat_interleave(rows // len(p.positions), 0) for p in parts]
        positions = torch.cat(aligned(parted), dim=-1)
        old = positions if positions.dim() == 3 else positions[:, None]
        padding = self._padding[:, None]
        row = torch.arange(rows, device=new.device)[:, None, None, None]
        query = (new + padding)[:, None, :, None]
        key = (old + padding[:, None]).clamp(min=0)[:, :, None]  # what is below is unseen anyway
        allowed = rule.allows(row, torch.zeros_like(row), query, key)
        if bool(allowed.all()):
            return None
        allowed = by_head(allowed.expand(rows, old.shape[1], new.shape[1], old.shape[2]), heads)
        return torch.zeros(allowed.shape, device=new.device).masked_fill_(~allowed, -inf)


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **rest: Any,
) -> tuple[torch.Tensor, None]:
    """The registered attention function: `query` `[rows, heads, new, head_dim]`, and the very `key`
    and `value` that the cache handed out. Returns `[rows, new, heads, value_dim]` and no weights."""
    layer, other = (getattr(tensor, MARK, None) for tensor in (key, value))
    if other is not layer or layer is None:
        raise UnsupportedModel(_changed(module, "it changes keys or values after the cache"))
    odd = [k for k, v in rest.items() if k not in _HARMLESS and v is not None and v is not False]
    if odd:
        raise UnsupportedModel(_changed(module, f"its attention takes '{odd[0]}'"))
    causal = getattr(module, "is_causal", True) and rest.get("is_causal", True) is not False
    if attention_mask is None and not causal:
        raise UnsupportedModel(_changed(module, "its attention is not causal"))
    memory, index = layer.memory, layer.index
    bias = position_bias
    layer.check(attention_mask, rest.get("sliding_window"))
    if isinstance(attention_mask, Rule):
        bias = _sum(bias, layer.rules.bias(attention_mask, index, query.shape[1]))
    elif attention_mask is not None:
        bias = _sum(bias, _additive(attention_mask))
    total = sum(part.tokens for part in memory.parts(index))
    if bias is not None and (bias.dim() != 4 or bias.shape[-1] != total):
        raise UnsupportedModel(
            _changed(module, f"its mask has another length than the {total} keys")
        )
    layer.waiting = False
    out = memory.attend(
        index,
        query,
        module.head_dim**-0.5 if scaling is None else float(scaling),
        softcap,
        bias,
        None if s_aux is None else s_aux.reshape(-1),
        windowed=attention_mask is None and rest.get("sliding_window") is not None,
    )
    return out.transpose(1, 2).contiguous(), None


@contextmanager
def registered(configs: list[Any]) -> Iterator[None]:
    """The attention function and the rule mask under `NAME` for the length of one forward."""
    before = [config._attn_implementation_internal for config in configs]
    tables = (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS)
    ours = (attention, lambda *args, mask_function, **rest: Rule(mask_function))
    try:
        for table, function in zip(tables, ours, strict=True):
            type(table).register(NAME, function)
        for config in configs:
            config._attn_implementation_internal = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation_internal = name
        for table in tables:
            type(table)._global_mapping.pop(NAME, None)


def _additive(mask: torch.Tensor) -> torch.Tensor:
    """A drawn mask as something to add to the scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -inf)


def _sum(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return other if one is None else one if other is None else one + other


def _changed(module: Any, why: str) -> str:
    return (
        f"cache=view cannot serve this model: {why} ({type(module).__name__}). "
        "Use cache=cloned, which serves every model."
    )
