"""At home in the library: a model object, a cache and a `generate` of the user's own."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness.cache import library
from harness.cache.library import Replay
from harness.capture import check_vocabulary, positions_of
from harness.capture.layers import check_captured, kv_format, layer_kinds, layers_of
from harness.config import CacheConfig
from harness.errors import InputProblem, UnsupportedModel
from harness.model.loaded import Loaded
from harness.pipeline.restore import floor, one_step_back
from harness.pipeline.session import Session, prompt_meta, tokenizer_files
from harness.snapshot.coherence import buffer_document
from harness.snapshot.state import State
from harness.tokenizer.policy import Encoded

GIVEN = "given"  # the policy of ids that nobody here encoded


def wrap(model: Any, tokenizer: Any) -> Loaded:
    """`model` and `tokenizer`, objects of the library's that are in use already, as a Loaded.

    Nothing is copied and nothing in them is changed. Adapters (PEFT) are weights like any other, so
    they are part of the identity, and so is how they are switched on. Raises InputProblem for a
    model in training mode, whose forward is not repeatable.
    """
    if model.training:
        raise InputProblem("the model is in training mode, where dropout acts: call model.eval().")
    settings = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in settings.values()):
        raise UnsupportedModel(
            "this adapter puts virtual tokens before every prompt, which stand in no token buffer. "
            "Adapters inside the layers (LoRA, IA3, ...) can be wrapped."
        )
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    loaded = Loaded(model, tokenizer, {"name": name, "revision": None, "commit": None}, 0.0)
    folder = Path(name)
    loaded.origin = {"option": "wrapped", "class": type(model).__name__}
    if (folder / "config.json").is_file() and not hasattr(model, "peft_config"):
        loaded.origin |= {"option": "path", "path": str(folder.absolute())}
    loaded.origin["parameters"] = sum(p.numel() for p in model.parameters())
    return loaded


def from_cache(
    session: Session,
    cache: Any,
    ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> State:
    """A State of `cache`, which the model filled with `ids` `[batch, tokens]`, all of them.

    attention_mask: `[batch, tokens]`, 0 for left padding. The cache is not changed: its keys and
    values are shared, its recurrent state is copied. The logits of the last token are computed anew.
    Raises InputProblem when cache and ids have other lengths, UnsupportedModel for a cache that
    cannot be captured.
    """
    loaded = session.loaded
    check_vocabulary(loaded, ids)
    ids = ids.to(loaded.device)
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask.to(ids)
    if mask.shape != ids.shape:
        raise InputProblem(f"attention_mask is {list(mask.shape)}, input_ids {list(ids.shape)}.")
    positions = positions_of(mask)
    layers = layers_of(cache, positions, layer_kinds(loaded.text_config))
    check_captured(loaded, layers)
    lengths = {_seen(layer) for layer in cache.layers} - {None}
    if lengths - {ids.shape[1]}:
        raise InputProblem(
            f"the cache holds {max(s for s in lengths if s is not None)} tokens, input_ids {ids.shape[1]}: "
            "give exactly the ids that filled it."
        )
    row = Encoded(tuple(ids[0].tolist()), loaded.tokenizer.decode(ids[0]), GIVEN, (), 0)
    sampler = session.sampler()
    documents = {
        **session.documents,
        "prompt_meta": {**prompt_meta(row, loaded.tokenizer), "buffer": buffer_document(ids)},
        "generation": {"sampler": sampler.document(), "steps": 0},
        "kv_format": kv_format(loaded, layers),
    }
    blank = loaded.model.get_input_embeddings().weight.new_zeros(len(ids), 1)
    following, files = positions[:, -1] + 1, tokenizer_files(loaded)
    frozen = MappingProxyType(documents)
    state = State(layers, ids, mask, following, blank, sampler.rng, frozen, files)
    state = replace(state, logits=_last_logits(loaded, state, positions))
    return state.document("proof", **measured) if (measured := floor(loaded, state)) else state


def to_cache(state: State, model: Any) -> Any:
    """A DynamicCache that holds `state`, for `model.generate(ids, past_key_values=...)` to go on with.

    model: the library's model, or a Loaded. Keys and values are shared, because the library replaces
    them as they grow; recurrent state is copied. Raises UnsupportedModel for a pruned state, whose
    positions `generate` would count wrong.
    """
    if state.pruned:
        raise UnsupportedModel(
            "a pruned state cannot go on in `generate`, which counts positions by the length of the "
            "cache. Continue it with harness.resume."
        )
    loaded = model if isinstance(model, Loaded) else Loaded(model, None, {}, 0.0)
    return library.to_cache(loaded, state.to(loaded.device))


def _last_logits(loaded: Loaded, state: State, positions: torch.Tensor) -> torch.Tensor:
    """`[batch, vocab]` after the last token: one step over the stored keys where they are all there,
    else one pass over all ids."""
    before = one_step_back(state)
    if before is not None:
        replay = Replay(loaded, state, before, CacheConfig("cloned"))
        return replay.step(state.token_ids[:, -1:])[:, -1]
    mask = None if bool(state.attention_mask.all()) else state.attention_mask
    return loaded.forward(state.token_ids, positions, mask, keep=1)[:, -1]


def _seen(layer: Any) -> int | None:
    """Tokens that an attention layer of a library cache was given; None for any other layer."""
    keys = getattr(layer, "keys", None)
    if keys is None or not keys.numel() or not hasattr(layer, "get_seq_length"):
        return None
    return int(layer.get_seq_length())
