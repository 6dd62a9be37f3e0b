"""The attention that every key receives, collected while the model runs, without a full matrix.

heavy_hitter sums it over all queries (H2O; the founding documents' brightness), snapkv and tova over
the last ones; expected_attention asks for what is yet to come (expected.py). What is recorded is recomputed from the very queries and keys of each attention call.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from harness.attention.turns import Turn, frequencies_of, turns
from harness.capture import keys_alone, new_cache, positions_of, prefill
from harness.capture.expected import Expectation
from harness.errors import UnsupportedModel
from harness.snapshot.state import LayerState, State

QUERY_CHUNK = 128  # scores of so many queries exist at once
EXPECTED = -1  # in place of a number of queries: what queries to come are expected to give
PROBE, LONGEST = (
    7,
    4096,
)  # the token, and the furthest position, that say how a model turns its keys


class Observation:
    """Attention that keys received, per layer `[batch, kv_heads, rows, keys]` float32, summed over the
    query heads of each KV head.

    queries: 0 sums all queries into one row; N keeps one row for each of the last N queries.
    No attention matrix is kept: scores exist for QUERY_CHUNK queries at a time.
    """

    def __init__(self, queries: int):
        self.queries = queries
        self.layers: dict[int, torch.Tensor] = {}

    def add(self, index: int, query: torch.Tensor, key: torch.Tensor, mask: Any, scale: float | None, softcap: float | None, sinks: Any) -> None:  # fmt: skip
        """One attention call. query `[batch, heads, new, head_dim]`, key `[batch, kv_heads, keys,
        head_dim]` ending with the newest token; mask: the library's own (bool or additive), or None
        for causal. sinks: `[heads]` learned logits that take mass but are no token."""
        new, keys = query.shape[2], key.shape[2]
        wanted = min(new, self.queries or new)
        rows = [
            _received_by(query[:, :, at : at + QUERY_CHUNK], key, _rows(mask, at, new), at - new, scale, softcap, sinks)
            for at in range(new - wanted, new, QUERY_CHUNK)
        ]  # fmt: skip
        got = torch.cat(rows, dim=2) if self.queries else sum(r.sum(2, keepdim=True) for r in rows)
        held = self.layers.get(index)
        if held is not None:
            held = torch.nn.functional.pad(held, (0, new))
            got = torch.nn.functional.pad(got, (held.shape[3] - keys, 0))
            got = torch.cat([held, got], 2)[:, :, -self.queries :] if self.queries else held + got
        self.layers[index] = got


def _rows(mask: torch.Tensor | None, at: int, new: int) -> torch.Tensor | None:
    """The mask's rows of the queries from `at` on; it may hold rows for all queries or one for all."""
    if mask is None or mask.shape[2] == 1:
        return mask
    return mask[:, :, at : at + QUERY_CHUNK]


def _received_by(query: torch.Tensor, key: torch.Tensor, mask: Any, offset: int, scale: float | None, softcap: float | None, sinks: Any) -> torch.Tensor:  # fmt: skip
    """`[batch, kv_heads, queries, keys]` float32 attention weights, summed over the query heads of a
    KV head. offset: place of the first query counted from the end (negative). A query that sees nothing gives nothing."""
    batch, heads, count, head_dim = query.shape
    kv_heads, keys = key.shape[1], key.shape[2]
    work = torch.promote_types(query.dtype, torch.float32)
    folded = query.reshape(batch, kv_heads, (heads // kv_heads) * count, head_dim).to(work)
    scores = folded @ key.to(work).transpose(-1, -2) * (head_dim**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.view(batch, heads, count, keys)
    if mask is None:
        last = torch.arange(count, device=key.device) + keys + offset
        seen = torch.arange(keys, device=key.device)[None] <= last[:, None]
    else:
        mask = mask[..., :keys]
        seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        if mask.dtype != torch.bool:
            scores = scores + mask.to(work)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        parked = sinks.to(work).reshape(1, -1, 1, 1).expand(batch, heads, count, 1)
        scores = torch.cat([scores, parked], dim=-1)
    weights = scores.softmax(-1).nan_to_num(0.0)[..., :keys]
    return weights.unflatten(1, (kv_heads, -1)).sum(2).float()


@contextmanager
def observing(loaded: Any, queries: int | None) -> Iterator[Observation | Expectation]:
    """Record the attention that keys receive in every forward of the block (or, EXPECTED, that they
    can expect); None records nothing.

    The model's own attention function still computes the output, so logits are bit-equal to an
    unobserved run; it is wrapped in the library's registry and put back afterwards. A model that
    does not use that registry leaves the Observation empty.
    """
    if queries is None:
        yield Observation(0)
        return
    seen = Expectation(_turns(loaded)) if queries == EXPECTED else Observation(queries)
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as REGISTRY

    name = loaded.text_config._attn_implementation
    own = REGISTRY._global_mapping.get(name)

    def observed(module: Any, query: Any, key: Any, value: Any, mask: Any = None, **given: Any) -> Any:  # fmt: skip
        with torch.no_grad():
            seen.add(module.layer_idx, query, key, mask, given.get("scaling"), given.get("softcap"), given.get("s_aux"))  # fmt: skip
        inner = own or sys.modules[type(module).__module__].eager_attention_forward
        return inner(module, query, key, value, mask, **given)

    def told(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if isinstance(seen, Expectation):
            seen.positions = kwargs.get("position_ids")

    hook = loaded.model.register_forward_pre_hook(told, with_kwargs=True)
    REGISTRY.register(name, observed)
    try:
        yield seen
    finally:
        hook.remove()
        if own is None:
            REGISTRY._global_mapping.pop(name)
        else:
            REGISTRY.register(name, own)


def _turns(loaded: Any) -> list[Turn | None]:
    """How each layer's queries turn with position: as its keys do. Where nothing rotates, nothing
    is turned (learned positions are part of a query's own mean)."""
    if not frequencies_of(loaded.model):
        return [None] * loaded.text_config.num_hidden_layers
    last = min(loaded.max_positions or LONGEST, LONGEST) - 1
    with torch.no_grad():
        return turns(loaded.model, lambda p: keys_alone(loaded, PROBE, p), last)


def received(state: State, seen: Observation | Expectation) -> State:
    """`state` with the attention that `seen` recorded for the tokens each layer still holds."""
    layers = seen.layers
    if not layers:
        return state
    return state.with_layers(tuple(_received(layer, layers) for layer in state.layers))


def _received(layer: LayerState, seen: dict[int, torch.Tensor]) -> LayerState:
    found = seen.get(layer.index)
    if found is None or not layer.segments:
        return layer
    return replace(layer, received=found[..., found.shape[3] - layer.kept :].contiguous())


def observe_again(loaded: Any, state: State, queries: int) -> State:
    """A State whose layers carry the attention their tokens received, recomputed from the token
    buffer (element 4) by the loaded model: what an unpruned run over the same tokens would see.

    Tokens are found by position, so a state that was pruned in place (`original`) is served too.
    Raises UnsupportedModel for a state whose positions were counted anew. Mutates nothing.
    """
    ids, mask = state.token_ids.to(loaded.device), state.attention_mask.to(loaded.device)
    positions = positions_of(mask)
    if bool((state.next_position.to(loaded.device) != positions[:, -1] + 1).any()):
        raise UnsupportedModel(
            "this state was reindexed, so its tokens cannot be found again in the token buffer and "
            "the attention they received cannot be recomputed. Use prune=knorm or sink_window."
        )
    with observing(loaded, queries) as seen:
        prefill(loaded, ids, mask, positions, new_cache(loaded))
    layers, recorded = [], seen.layers
    for layer in state.layers:
        found = recorded.get(layer.index)
        if found is not None and layer.segments:
            held = layer.positions if layer.per_head else layer.positions[:, None]
            at = (held - positions[:, :1, None]).clamp(min=0)  # the buffer holds each position once
            at = at[:, :, None].expand(-1, *found.shape[1:3], -1)
            layer = replace(layer, received=found.gather(3, at))
        layers.append(layer)
    return state.with_layers(tuple(layers))
