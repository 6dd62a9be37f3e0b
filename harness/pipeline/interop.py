"""At home in the library: a model object, a cache and a `generate` of the user's own."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from harness.cache import library
from harness.cache.base import check_fit
from harness.cache.library import Replay
from harness.capture import new_cache, positions_of, vocabulary
from harness.capture.layers import check_captured, kv_format, layers_of
from harness.config import CacheConfig
from harness.errors import InputProblem, UnsupportedModel
from harness.model.ids import numbers
from harness.model.loaded import Loaded
from harness.pipeline.argument import check_shapes, warn_of
from harness.pipeline.handed import check_cache, check_model, check_tokenizer, inside
from harness.pipeline.positions import PRUNED, by_the_mask
from harness.pipeline.refill import refilled
from harness.pipeline.restore import floor, identity_check, one_step_back
from harness.pipeline.rope_switch import decoder
from harness.pipeline.session import Session, prompt_meta, tokenizer_files
from harness.snapshot.coherence import buffer_document
from harness.snapshot.state import State
from harness.tokenizer.policy import Encoded

AFTER = (
    " Of what `generate` chose every token was fed, the padding of rows that had ended too: its mask is "
    "torch.cat([mask, torch.ones(batch, chosen)], 1)."
)
GIVEN = "given"  # the policy of ids that nobody here encoded
_LENT: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the documents of models that were lent


def wrap(model: Any, tokenizer: Any) -> Loaded:
    """See `harness.wrap`."""
    model = inside(model)
    check_model(model)
    if model.training:
        raise InputProblem("the model is in training mode, where dropout acts: call model.eval().")
    settings = getattr(model, "peft_config", None) or {}
    if any(getattr(adapter, "is_prompt_learning", False) for adapter in settings.values()):
        raise UnsupportedModel(
            "this adapter puts virtual tokens before every prompt, which stand in no token buffer. "
            "Adapters inside the layers (LoRA, IA3, ...) can be wrapped."
        )
    if tokenizer is None:
        tokenizer = numbers(model.get_input_embeddings().weight.shape[0])
    else:
        check_tokenizer(tokenizer, model)
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    loaded = Loaded(model, tokenizer, {"name": name, "revision": None, "commit": None}, 0.0)
    folder = Path(name)
    loaded.origin = {"option": "wrapped", "class": type(model).__name__}
    if (folder / "config.json").is_file() and not hasattr(model, "peft_config"):
        loaded.origin |= {"option": "path", "path": str(folder.absolute())}
    loaded.origin["parameters"] = sum(p.numel() for p in model.parameters())
    if loaded.hides_arguments:  # nothing that asks for its cache could go on
        new_cache(loaded)
    return loaded


def from_cache(
    session: Session,
    cache: Any,
    ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    check: bool = True,
) -> State:
    """A State of `cache`, which the model filled with `ids` `[batch, tokens]`, all of them.

    attention_mask: `[batch, tokens]`, 0 for left padding. position_ids: `[batch, tokens]` as the forward
    had them; without, how a padded row was counted is found out (see `counting`). The cache is not changed: its
    keys and values are shared, unless they stand at other positions than the mask counts; its
    recurrent state is copied. The logits of the last token are computed anew. check: what it holds is
    compared with what the ids give (see `refill`). Raises InputProblem when
    cache and ids do not belong together, UnsupportedModel for a cache that cannot be captured.
    """
    loaded = session.loaded
    check_cache(cache)
    ids, mask = _rows(ids, attention_mask, loaded.device)
    if (largest := int(ids.max())) >= (rows := vocabulary(loaded)):
        raise InputProblem(
            f"input_ids holds token {largest}, but this model knows {rows} tokens. Give the ids of its own tokenizer."
        )
    positions = positions_of(mask)
    layers = layers_of(cache, positions, loaded.text_config)
    if not any(layer.segments or layer.recurrent for layer in layers):
        raise InputProblem(
            "the cache is empty: no forward filled it. Hand it to the model, "
            "model(input_ids, past_key_values=cache), or give the `past_key_values` of its output."
        )
    check_captured(loaded, layers)
    _check_filled(cache, ids)
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
    state = by_the_mask(loaded, state, position_ids)
    again = refilled(loaded, state) if check else None
    state = replace(state, logits=_last_logits(loaded, state, positions, again))
    return state.document("proof", **measured) if (measured := floor(loaded, state)) else state


def of_generate(
    session: Session,
    cache: Any,
    ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    check: bool = True,
) -> State:
    """As `from_cache`; of `ids` that are one more than `cache` holds, as `generate` leaves them, the last one is fed
    here, to a copy."""
    check_cache(cache)
    before = ids.shape[-1] - 1 if torch.is_tensor(ids) else 0
    if before < 1 or {*_lengths(cache).values()} != {before}:
        return from_cache(session, cache, ids, attention_mask, position_ids, check)
    rows, mask = _rows(ids, attention_mask, session.loaded.device)
    if position_ids is not None:
        position_ids = position_ids[..., :before]
    state = from_cache(session, cache, rows[:, :before], mask[:, :before], position_ids, check)
    runner = decoder(session.loaded, state, CacheConfig("cloned"))
    runner.step(rows[:, before:])
    return runner.commit()


def to_cache(session: Session, state: State) -> Any:
    """A DynamicCache that holds `state`, for `model.generate(ids, past_key_values=...)` to go on with.

    session: with the model, as `lent` gives it, or a Loaded. Keys and values are shared, because the library replaces
    them as they grow; recurrent state is copied. Raises UnsupportedModel for a pruned state, whose
    positions `generate` would count wrong, RestoreRefused for a state of another model or dtype, and Misfit or
    UnsupportedModel for what no cache of this one can hold, also where `restore.strict=false` waives the rest.
    """
    if state.pruned:
        raise UnsupportedModel(
            "a pruned state cannot go on in `generate`, which counts positions by the length of the "
            "cache. Continue it with harness.resume."
        )
    live: Any = session
    loaded = session.loaded
    if loaded.tokenizer is None:  # none was given, so none is compared
        same = {"tokenizer": state.documents.get("tokenizer")}
        live = SimpleNamespace(
            cfg=session.cfg, loaded=loaded, documents={**loaded.documents, **same}
        )
    _, waived = identity_check(live, state, "")
    check_shapes(loaded, state)
    there = state.to(loaded.device)
    check_fit(loaded, there)
    warn_of(waived, state)
    return library.to_cache(loaded, there)


def lent(model: Any) -> Loaded:
    """`model`, the library's, as a Loaded without a tokenizer; a Loaded as it is. Raises InputProblem for anything
    else. What its weights are is remembered for as long as it lives, or until they change."""
    if isinstance(model, Loaded):
        return model
    model = inside(model)
    check_model(model)
    loaded = Loaded(model, None, {}, 0.0)
    loaded._known = _LENT.get(model)
    assert loaded.documents
    _LENT[model] = loaded._known
    return loaded


def _last_logits(
    loaded: Loaded, state: State, positions: torch.Tensor, again: torch.Tensor | None
) -> torch.Tensor:
    """`[batch, vocab]` after the last token: one step over the stored keys where they are all there,
    else those of a pass over all ids: `again`, or one made now."""
    before = one_step_back(state)
    if before is not None:
        replay = Replay(loaded, state, before, CacheConfig("cloned"))
        return replay.step(state.token_ids[:, -1:])[:, -1]
    if again is not None:
        return again
    mask = None if bool(state.attention_mask.all()) else state.attention_mask
    return loaded.forward(state.token_ids, positions, mask, keep=1)[:, -1]


def _rows(
    ids: Any, attention_mask: torch.Tensor | None, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """`input_ids` and their mask, each `[batch, tokens]` int64 on `device`."""
    if not torch.is_tensor(ids) or ids.dim() != 2 or ids.is_floating_point() or not ids.numel():
        form = (
            f"{list(ids.shape)} of {ids.dtype}"
            if torch.is_tensor(ids)
            else f"a {type(ids).__name__}"
        )
        raise InputProblem(
            f"input_ids is {form}, not a tensor [batch, tokens] of whole numbers: give what "
            'tokenizer(text, return_tensors="pt").input_ids is, or torch.tensor([ids]).'
        )
    ids = ids.to(device, torch.int64)
    if bool((ids < 0).any()):
        raise InputProblem("input_ids holds a negative number, which is no token.")
    if attention_mask is not None and not torch.is_tensor(attention_mask):
        raise InputProblem(
            f"attention_mask is a {type(attention_mask).__name__}: give a tensor of [batch, tokens], 0 for padding."
        )
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask.to(ids)
    if mask.shape != ids.shape:
        raise InputProblem(
            f"attention_mask is {list(mask.shape)}, input_ids {list(ids.shape)}.{AFTER}"
        )
    if bool((mask.diff(dim=1) < 0).any()) or not bool((mask[:, -1] == 1).all()):
        raise InputProblem(
            "attention_mask hides a token at the end of a row or inside it: a cache can go on only "
            f'where the padding is on the left. Use padding_side="left" in the tokenizer.{AFTER}'
        )
    return ids, mask


def _check_filled(cache: Any, ids: torch.Tensor) -> None:
    """Raise InputProblem where `ids` `[batch, tokens]` cannot be what filled `cache`."""
    seen = _lengths(cache)
    for number in seen:
        keys, values = (getattr(cache.layers[number], part).shape[2] for part in ("keys", "values"))
        if keys != values:
            raise InputProblem(
                f"layer {number} of the cache has keys of {keys} tokens and values of {values}: no forward leaves it so. "
                "Give the cache as the model filled it."
            )
    lengths = set(seen.values())
    if len(lengths) > 1:
        usual = max(lengths)
        first = next(number for number, held in seen.items() if held != usual)
        raise InputProblem(
            f"layer {first} of the cache holds {seen[first]} tokens, others {usual}: no forward leaves it so. Give the "
            f"cache as the model filled it.{' ' + PRUNED if usual <= ids.shape[1] else ''}"
        )
    if lengths - {ids.shape[1]}:
        longest = max(lengths)
        hint = ""
        if longest > ids.shape[1]:
            hint = " A `generate` that is given no id beyond those of its cache feeds all of them once more."
        else:
            hint = f" {PRUNED}"
        raise InputProblem(
            f"the cache holds {longest} tokens, input_ids {ids.shape[1]}: "
            f"give exactly the ids that filled it.{hint}"
        )
    rows = {len(la.keys) for la in cache.layers if _seen(la) is not None} - {len(ids)}
    if rows:
        raise InputProblem(
            f"the cache has {max(rows)} rows, input_ids {len(ids)}: give the ids of every row, or "
            "after a search with beams take the rows of one (cache.batch_select_indices)."
        )


def _lengths(cache: Any) -> dict[int, int]:
    """Tokens that each attention layer of a library cache was given, by its number."""
    known = {number: _seen(layer) for number, layer in enumerate(cache.layers)}
    return {number: held for number, held in known.items() if held is not None}


def _seen(layer: Any) -> int | None:
    """Tokens that an attention layer of a library cache was given; None for any other layer."""
    keys = getattr(layer, "keys", None)
    if keys is None or not keys.numel() or not hasattr(layer, "get_seq_length"):
        return None
    return int(layer.get_seq_length())
