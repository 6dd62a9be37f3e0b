"""Prefill and collect the 13 elements into an immutable State.

The caller's live cache is handed back too: the uninterrupted run goes on with that very object.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from harness import machine
from harness.capture.finite import check_finite
from harness.capture.layers import check_captured, kv_format, layers_of
from harness.errors import InputProblem, UnsupportedModel
from harness.snapshot.state import State

# what the library raises where a model and the cache made for it do not go together
_LIBRARY = (ValueError, TypeError, KeyError, AttributeError, IndexError, NotImplementedError)


@dataclass(frozen=True)
class Captured:
    """state: immutable. live: the library's own cache, still growing. prefill_s: seconds."""

    state: State
    live: Any
    prefill_s: float


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`(ids, mask)`, each `[batch, longest]` int64; padding on the left, mask 0 there."""
    longest = max(len(r) for r in rows)
    ids = torch.full((len(rows), longest), pad, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, longest - len(row) :] = torch.tensor(row)
        mask[i, longest - len(row) :] = 1
    return ids, mask


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """`[batch, tokens]` absolute positions; left padding gets -n..-1, so they strictly increase."""
    padding = (mask == 0).sum(dim=1, keepdim=True)
    return torch.arange(mask.shape[1], device=mask.device)[None] - padding


def check_length(loaded: Any, tokens: int, steps: int) -> None:
    """Raise InputProblem when `tokens + steps` positions do not fit the model."""
    limit = loaded.max_positions
    if limit is None or tokens + steps <= limit:
        return
    follow, mend = f"{steps} more are to follow", "Shorten the prompt or the steps (steps=N)."
    if steps < 2:
        follow, mend = "at least one more is to follow", "Shorten the prompt."
    raise InputProblem(
        f"the prompt has {tokens} tokens and {follow}, but this model has {limit} positions. {mend}"
    )


def vocabulary(loaded: Any) -> int:
    """Tokens that the model has an embedding for."""
    rows: int = loaded.model.get_input_embeddings().num_embeddings
    return rows


def check_vocabulary(loaded: Any, ids: torch.Tensor | Sequence[int]) -> None:
    """Raise InputProblem when the tokenizer made `ids` that the model has no embedding for."""
    ids = torch.as_tensor(ids)
    if ids.numel() and (largest := int(ids.max())) >= (rows := vocabulary(loaded)):
        built = "architecture" in getattr(loaded, "origin", ())  # of keys, not of a folder
        raise InputProblem(
            f"the tokenizer made token {largest}, but this model knows {rows} tokens. Give the "
            f"model's own tokenizer (model.tokenizer=DIR){', or a larger model.config.vocab_size' * built}."
        )


def check_layers(loaded: Any) -> None:
    """Raise UnsupportedModel for a model without a layer: it remembers nothing."""
    if loaded.layers < 1:
        raise UnsupportedModel(
            f"this model has no layer (num_hidden_layers: {loaded.layers}), so it remembers nothing that could be captured. "
            "Give one that has layers."
        )


def check_memory(loaded: Any, batch: int, tokens: int) -> None:
    """Raise InputProblem when the keys and values of `[batch, tokens]` cannot fit in memory."""
    free = machine.free_memory() if loaded.device.type == "cpu" else None
    if free is None:
        return
    config = loaded.text_config
    try:
        every = getattr(config, "num_attention_heads", None)
        if not every:
            return
        heads = getattr(config, "num_key_value_heads", None) or every
        size = getattr(config, "head_dim", None) or config.hidden_size // every
    except RuntimeError:  # the library, of layers of several shapes: they have no one number
        return
    needed = 2 * batch * tokens * config.num_hidden_layers * heads * size * loaded.dtype.itemsize
    if needed > free:
        raise InputProblem(
            f"the keys and values of {batch} x {tokens} tokens need {machine.human(needed)} of "
            f"memory, {machine.human(free)} are free. Shorten the prompt, or use dtype=bfloat16."
        )


def capture(
    loaded: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    documents: Mapping[str, Any],
    tokenizer_files: Mapping[str, bytes] = MappingProxyType({}),
    rng: torch.Tensor | None = None,
    chunk: int | None = None,
    finite: bool = True,
) -> Captured:
    """Prefill `ids` `[batch, tokens]` in one pass (or in chunks) and collect the State.

    mask: `[batch, tokens]`, 0 for left padding. documents: JSON-able, by element name; those of the
    model and the KV format are added here. finite: NaN and infinity are refused. Mutates nothing that is passed in.
    Raises InputProblem for a prompt that is too long and for what is not finite, UnsupportedModel for a cache of
    unknown kind.
    """
    check_layers(loaded)
    check_length(loaded, int(mask.sum(dim=1).max()), 1)
    check_vocabulary(loaded, ids)
    check_memory(loaded, *ids.shape)
    ids, mask = ids.to(loaded.device), mask.to(loaded.device)
    positions = positions_of(mask)
    cache = new_cache(loaded)
    start = time.perf_counter()
    try:
        logits = prefill(loaded, ids, mask, positions, cache, chunk)
    except _LIBRARY as problem:
        first = (str(problem).strip() or type(problem).__name__).splitlines()[0][:160]
        raise UnsupportedModel(
            f"'{loaded.text_config.model_type}' cannot be captured: the library's own forward over "
            f"its cache fails ({type(problem).__name__}: {first})."
        ) from problem
    _synchronize(loaded.device)
    seconds = time.perf_counter() - start
    layers = layers_of(cache, positions, loaded.text_config)
    check_captured(loaded, layers)
    state = State(
        layers=layers,
        token_ids=ids,
        attention_mask=mask,
        next_position=positions[:, -1] + 1,
        logits=logits[:, -1].clone(),
        rng=rng if rng is not None else torch.Generator().get_state(),
        documents=MappingProxyType(
            {**loaded.documents, **documents, "kv_format": kv_format(loaded, layers)}
        ),
        tokenizer_files=tokenizer_files,
    )
    if finite:
        check_finite(loaded, state)
    return Captured(state, cache, seconds)


def new_cache(loaded: Any) -> Any:
    """The library's growing cache for this model, empty. Raises UnsupportedModel for a model that
    takes no such cache."""
    from transformers import DynamicCache

    if not loaded.takes_cache:
        if loaded.hides_arguments:
            raise UnsupportedModel(
                f"{type(loaded.model).__name__}.forward names none of its arguments, so it cannot be seen that "
                "it takes a cache: decorate it with functools.wraps(the library's forward), which shows them."
            )
        raise UnsupportedModel(
            f"'{loaded.text_config.model_type}' keeps its state in a form of its own and takes no "
            "cache of the library's, so it cannot be captured. Models whose forward takes "
            "`past_key_values`, or a DynamicCache as `cache_params`, can."
        )
    return DynamicCache(config=loaded.model.config)


def static_cache(loaded: Any, slots: int) -> Any:
    """The library's fixed cache for this model, with room for `slots` tokens."""
    from transformers import StaticCache

    return StaticCache(config=loaded.model.config, max_cache_len=slots)


def whole_cache() -> Any:
    """A growing cache that knows no config: it keeps every token, whatever the model's window."""
    from transformers import DynamicCache

    return DynamicCache()


def prefill(
    loaded: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
    cache: Any,
    chunk: int | None = None,
) -> torch.Tensor:
    """Logits `[batch, 1, vocab]` of the last token; fills `cache`."""
    whole = getattr(loaded, "switch", None) is not None and ids.shape[1] > loaded.switch
    size = ids.shape[1] if whole or not chunk else chunk  # factors switch: no chunk goes before
    sent = None if bool(mask.all()) else mask
    for start in range(0, ids.shape[1], size):
        stop = min(start + size, ids.shape[1])
        logits = loaded.forward(
            ids[:, start:stop],
            positions[:, start:stop],
            None if sent is None else sent[:, :stop],
            cache,
            keep=1,
        )
    return logits


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def keys_alone(loaded: Any, token: int, position: int) -> list[torch.Tensor | None]:
    """Per layer the key `[1, kv_heads, 1, head_dim]` of one `token` alone at `position` (None where
    a layer keeps none): how the model's keys depend on the position, and on nothing else."""
    ids = torch.tensor([[token]], device=loaded.device)
    cache = new_cache(loaded)
    loaded.forward(ids, torch.full_like(ids, position), None, cache, keep=1)
    keys = [getattr(layer, "keys", None) for layer in cache.layers]
    return [k if k is not None and k.numel() else None for k in keys]
