"""The layers of a library cache as a State keeps them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from harness.errors import UnsupportedModel
from harness.snapshot.coherence import KV_FORMAT, LAYOUT
from harness.snapshot.state import FULL, LINEAR, SLIDING, LayerState, Segment


def check_captured(loaded: Any, layers: Sequence[LayerState]) -> None:
    """Raise UnsupportedModel when a layer that has a memory left nothing in the cache."""
    empty = [la.index for la in layers if la.kind != DUMMY and not (la.segments or la.recurrent)]
    if empty or not layers:
        raise UnsupportedModel(
            f"'{loaded.text_config.model_type}' keeps the state of {_counted(empty)} outside the "
            "library's cache, where it cannot be captured: a snapshot would not hold the whole "
            "thought. Models that keep all of it in the cache can be captured."
        )


def _counted(layers: Sequence[int]) -> str:
    if not layers:
        return "every layer"
    shown = ", ".join(map(str, layers[:4]))
    return (
        f"{'layer' if len(layers) == 1 else 'layers'} {shown}{', ...' if len(layers) > 4 else ''}"
    )


def layer_kinds(config: Any) -> list[str] | None:
    """The config's own layer types, where it lists them."""
    kinds = getattr(config, "layer_types", None)
    return list(kinds) if kinds is not None else None


def layers_of(cache: Any, positions: torch.Tensor, config: Any = None) -> tuple[LayerState, ...]:
    """Read every layer of a library cache. What the library writes in place is copied (recurrent
    state, the buffers of a StaticCache), the rest is shared. config: the model's, which may say more
    of a layer than its cache does. Raises UnsupportedModel for other kinds."""
    kinds = layer_kinds(config) or []
    window = getattr(config, "sliding_window", None) or getattr(
        config, "attention_chunk_size", None
    )
    return tuple(
        _layer(index, layer, positions, kinds[index] if index < len(kinds) else None, window)
        for index, layer in enumerate(cache.layers)
    )


INDEXER = ("indexer_keys", "indexer_position_ids")
DUMMY = "dummy"  # shares the memory of another layer, or has none
_KNOWN = {
    "DynamicLayer",
    "DynamicSlidingWindowLayer",
    "DynamicIndexedLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndFullAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
    "DummyLayer",
    "StaticLayer",
    "StaticSlidingWindowLayer",
    "LinearAttentionAndStaticFullAttentionLayer",
    "LinearAttentionAndStaticSlidingWindowAttentionLayer",
}


def _layer(
    index: int, layer: Any, positions: torch.Tensor, kind: str | None, configured: int | None
) -> LayerState:
    name = type(layer).__name__
    if name not in _KNOWN and not _plain(layer):
        raise UnsupportedModel(
            f"layer {index} keeps its memory in a {name}, which this harness cannot capture: full, sliding and linear "
            "attention layers can be captured, and a class below DynamicLayer whose `keys` and `values` hold every token. "
            "DynamicCache(pairs of keys and values) makes such a cache; of a quantized one capture the plain cache, and "
            "quantize that state (harness.quantize_state); how to go on otherwise says a class below harness.cache.Decoder."
        )
    recurrent = _recurrent(layer)
    keys = getattr(layer, "keys", None)
    if keys is None or not keys.numel():
        kind = LINEAR if recurrent else DUMMY if name == "DummyLayer" else kind or FULL
        seen = positions.shape[1] if recurrent else 0
        return LayerState(index, kind, seen=seen, recurrent=recurrent)
    window = None
    if getattr(layer, "is_sliding", False):
        window = int(getattr(layer, "sliding_window", None) or configured or layer.max_cache_len)
    values = layer.values
    if "Static" in name:
        keys, values = (_filled(buffer, layer, window) for buffer in (keys, values))
    kept = keys.shape[2]
    # a forward without no_grad leaves its graph on them
    keys, values = keys.detach(), values.detach()
    segment = Segment(keys, values, positions[:, positions.shape[1] - kept :].contiguous())
    default = SLIDING if window else FULL
    kind = kind if kind in ("chunked_attention",) or (recurrent and kind) else default
    return LayerState(index, kind, (segment,), positions.shape[1], window, recurrent)


def _plain(layer: Any) -> bool:
    """Whether a layer of a class of somebody's own holds keys and values of every token, as the library's DynamicLayer
    does, from which it comes."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(layer).__mro__}
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if "transformers.cache_utils.DynamicLayer" not in kinds or getattr(layer, "is_sliding", False):
        return False
    if not (torch.is_tensor(keys) and torch.is_tensor(values) and keys.dim() == values.dim() == 4):
        return False
    return keys.shape[2] == values.shape[2] == layer.get_seq_length()


def _filled(buffer: torch.Tensor, layer: Any, window: int | None) -> torch.Tensor:
    """A copy of what a pre-allocated `buffer` `[batch, kv_heads, capacity, head_dim]` holds: its unused
    end left out, of a window as much as the next token looks back on."""
    end = min(int(layer.get_seq_length()), buffer.shape[2])
    start = 0 if window is None else max(end - window + 1, 0)
    return buffer[:, :, start:end].clone()


def _recurrent(layer: Any) -> Mapping[str, torch.Tensor]:
    tensors = {
        f"{part}_{i}": tensor.detach().clone()
        for part in ("conv_states", "recurrent_states")
        for i, tensor in _numbered(getattr(layer, part, None))
        if tensor is not None
    }
    for part in INDEXER:  # what an index over the keys holds of every token
        if torch.is_tensor(tensor := getattr(layer, part, None)):
            batch_first = tensor.transpose(0, 1) if part == INDEXER[1] else tensor
            tensors[f"{part}_0"] = batch_first.detach().clone()
    return MappingProxyType(tensors)


def _numbered(value: Any) -> list[tuple[int, Any]]:
    if value is None:
        return []
    if isinstance(value, dict):
        return sorted(value.items())
    return list(enumerate(value)) if isinstance(value, list | tuple) else [(0, value)]


def kv_format(loaded: Any, layers: Sequence[LayerState]) -> dict[str, Any]:
    """Element +3: how the K/V is laid out, layer by layer."""
    import transformers

    return {
        "version": KV_FORMAT,
        "layout": LAYOUT,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "attention_implementation": str(loaded.text_config._attn_implementation),
        "libraries": {"torch": torch.__version__, "transformers": transformers.__version__},
        "layers": [
            {
                "index": layer.index,
                "kind": layer.kind,
                "window": layer.window,
                "seen": layer.seen,
                "segments": [s.tokens for s in layer.segments],
                "recurrent": sorted(layer.recurrent),
                "received": layer.received is not None,
            }
            for layer in layers
        ],
    }
