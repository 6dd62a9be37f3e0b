"""The attention that every key receives, collected while the model runs, without a full matrix.

heavy_hitter sums it over all queries (H2O; the founding documents' brightness), snapkv and tova over
the last ones; expected_attention asks for what is yet to come (expected.py). What is recorded is recomputed from the very queries and keys of each attention call.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

import torch

from harness.attention.turns import Turn, frequencies_of, turns
from harness.capture import keys_alone, new_cache, positions_of, prefill
from harness.capture.expected import Expectation
from harness.errors import UnsupportedModel
from harness.snapshot.state import LayerState, State

QUERY_CHUNK = 128  # scores of so many queries exist at once
EXPECTED = -1  # in place of a number of queries: what queries to come are expected to give
# The token, and the furthest position, that say how a model turns its keys.
PROBE, LONGEST = 7, 4096


class Observation:
    """Attention that keys received, per layer `[batch, kv_heads, rows, keys]` float32, summed over the
    query heads of each KV head.

    queries: 0 sums all queries into one row; N keeps one row for each of the last N queries.
    No attention matrix is kept: scores exist for QUERY_CHUNK queries at a time.
    """

    def __init__(self, queries: int):
        self.queries = queries
        self.layers: dict[int, torch.Tensor] = {}

    def add(
        self,
        index: int,
        query: torch.Tensor,
        key: torch.Tensor,
        mask: Any,
        scale: float | None,
        softcap: float | None,
        sinks: Any,
    ) -> None:
        """One attention call. query `[batch, heads, new, head_dim]`, key `[batch, kv_heads, keys,
        head_dim]` ending with the newest token; mask: the library's own (bool or additive), or None
        for causal. sinks: `[heads]` learned logits that take mass but are no token."""
        new, keys = query.shape[2], key.shape[2]
        wanted = min(new, self.queries or new)
        rows = []
        for at in range(new - wanted, new, QUERY_CHUNK):
            chunk, bias = query[:, :, at : at + QUERY_CHUNK], _rows(mask, at, new)
            rows.append(_received_by(chunk, key, bias, at - new, scale, softcap, sinks))
        if self.queries:
            weights = torch.cat(rows, dim=2)
        else:
            weights = reduce(torch.add, [r.sum(2, keepdim=True) for r in rows])
        earlier = self.layers.get(index)
        if earlier is not None:
            earlier = torch.nn.functional.pad(earlier, (0, new))
            weights = torch.nn.functional.pad(weights, (earlier.shape[3] - keys, 0))
            if self.queries:
                weights = torch.cat([earlier, weights], 2)[:, :, -self.queries :]
            else:
                weights = earlier + weights
        self.layers[index] = weights


def _rows(mask: torch.Tensor | None, at: int, new: int) -> torch.Tensor | None:
    """The mask's rows of the queries from `at` on; it may hold rows for all queries or one for all."""
    if mask is None or mask.shape[2] == 1:
        return mask
    return mask[:, :, at : at + QUERY_CHUNK]


def _received_by(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: Any,
    offset: int,
    scale: float | None,
    softcap: float | None,
    sinks: Any,
) -> torch.Tensor:
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
        visible = torch.arange(keys, device=key.device)[None] <= last[:, None]
    else:
        mask = mask[..., :keys]
        visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        if mask.dtype != torch.bool:
            scores = scores + mask.to(work)
    scores = scores.masked_fill(~visible, float("-inf"))
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
    observation = Expectation(_turns(loaded)) if queries == EXPECTED else Observation(queries)
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as REGISTRY

    name = loaded.text_config._attn_implementation
    original = REGISTRY._global_mapping.get(name)

    def observed(
        module: Any, query: Any, key: Any, value: Any, mask: Any = None, **options: Any
    ) -> Any:
        with torch.no_grad():
            bends = (options.get(name) for name in ("scaling", "softcap", "s_aux"))
            observation.add(module.layer_idx, query, key, mask, *bends)
        inner = original or sys.modules[type(module).__module__].eager_attention_forward
        return inner(module, query, key, value, mask, **options)

    def locate(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if isinstance(observation, Expectation):
            observation.positions = kwargs.get("position_ids")

    hook = loaded.model.register_forward_pre_hook(locate, with_kwargs=True)
    REGISTRY.register(name, observed)
    try:
        yield observation
    finally:
        hook.remove()
        if original is None:
            REGISTRY._global_mapping.pop(name)
        else:
            REGISTRY.register(name, original)


def _turns(loaded: Any) -> list[Turn | None]:
    """How each layer's queries turn with position: as its keys do. Where nothing rotates, nothing
    is turned (learned positions are part of a query's own mean)."""
    if not frequencies_of(loaded.model):
        return [None] * loaded.text_config.num_hidden_layers
    last = min(loaded.max_positions or LONGEST, LONGEST) - 1
    with torch.no_grad():
        return turns(loaded.model, lambda p: keys_alone(loaded, PROBE, p), last)


def received(state: State, observation: Observation | Expectation) -> State:
    """`state` with the attention that `observation` recorded for the tokens each layer still holds."""
    layers = observation.layers
    if not layers:
        return state
    return state.with_layers(tuple(_received(layer, layers) for layer in state.layers))


def _received(layer: LayerState, attention: dict[int, torch.Tensor]) -> LayerState:
    weights = attention.get(layer.index)
    if weights is None or not layer.segments:
        return layer
    return replace(layer, received=weights[..., weights.shape[3] - layer.kept :].contiguous())


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
    with observing(loaded, queries) as observation:
        prefill(loaded, ids, mask, positions, new_cache(loaded))
    layers, recorded = [], observation.layers
    for layer in state.layers:
        weights = recorded.get(layer.index)
        if weights is not None and layer.segments:
            places = layer.positions if layer.per_head else layer.positions[:, None]
            # the buffer holds each position once
            at = (places - positions[:, :1, None]).clamp(min=0)
            at = at[:, :, None].expand(-1, *weights.shape[1:3], -1)
            layer = replace(layer, received=weights.gather(3, at))
        layers.append(layer)
    return state.with_layers(tuple(layers))
