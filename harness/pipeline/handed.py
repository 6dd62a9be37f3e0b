"""What a caller handed in as model, tokenizer and cache: one sentence for what cannot be taken."""

from pathlib import Path
from typing import Any

import torch

from harness.errors import InputProblem
from harness.model.loaded import Loaded


def inside(model: Any) -> Any:
    """The module that `torch.compile` or a parallel wrapper of torch's holds; any other as it is."""
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while isinstance(model, torch.nn.Module):
        if isinstance(model, parallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model._modules["_orig_mod"]
        else:
            break
    return model


def check_model(model: Any) -> None:
    """Raise InputProblem for what `wrap` cannot wrap."""
    kind = type(model).__name__
    if isinstance(model, Loaded):
        raise InputProblem("this model is wrapped already: use it as it is.")
    if isinstance(model, str | Path):
        raise InputProblem(
            f"wrap takes a model object, and '{model}' is a {kind}: harness.load_model loads one."
        )
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise InputProblem(
            f"a {kind} cannot be wrapped: it is no model of the library's, which has a `config` and a forward "
            "that takes a cache (AutoModelForCausalLM.from_pretrained loads one). The order is "
            "wrap(model, tokenizer)."
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise InputProblem(
            f"this model, {kind}, has an encoder: what its decoder remembers is of two texts. Models that "
            "are a decoder alone can be wrapped, as AutoModelForCausalLM.from_pretrained loads them."
        )
    generates = getattr(model, "can_generate", lambda: True)()
    if not generates and getattr(model, "get_output_embeddings", lambda: True)() is None:
        raise InputProblem(
            f"this model, {kind}, has no head: it gives hidden states, and no next token can be read from "
            "them. Load it with AutoModelForCausalLM.from_pretrained."
        )
    if any(hasattr(weight, "full_tensor") for weight in model.parameters()):  # a DTensor's
        raise InputProblem(
            f"the weights of this {kind} are spread over processes (FSDP or tensor parallelism): none here has "
            "all of them to digest or to judge by. Load it whole in one process, with AutoModelForCausalLM.from_pretrained "
            "and without a tp_plan."
        )


def check_tokenizer(tokenizer: Any, model: Any) -> None:
    """Raise InputProblem for what is no tokenizer, and for one that makes ids the model has no row for."""
    if not hasattr(tokenizer, "decode") or not hasattr(tokenizer, "save_pretrained"):
        raise InputProblem(
            f"the tokenizer is a {type(tokenizer).__name__}, none of the library's: give the model's own "
            "(AutoTokenizer.from_pretrained), or none: then a text is its ids ('5 17 300')."
        )
    words, rows = tokenizer.vocab_size, model.get_input_embeddings().weight.shape[0]
    if words > rows:  # of the vocabulary itself: tokens added to it may have no row
        raise InputProblem(
            f"the tokenizer knows {words} tokens, the model has {rows}: it is the tokenizer of "
            "another model. Give the model's own, or none: then a text is its ids ('5 17 300')."
        )


def check_cache(cache: Any) -> None:
    """Raise InputProblem for what is no cache of the library's, and for one of two texts."""
    if hasattr(cache, "layers"):
        return
    if hasattr(cache, "self_attention_cache"):
        raise InputProblem(
            f"past_key_values is an {type(cache).__name__}: two caches, of a decoder and of what it reads of an encoder. "
            "Give its `self_attention_cache`, where that is all that was filled: as by a model that is a decoder alone."
        )
    kind = "None" if cache is None else f"a {type(cache).__name__}"
    raise InputProblem(
        f"past_key_values is {kind}, no cache of the library's: give `past_key_values` of a forward "
        "with use_cache=True, a DynamicCache. DynamicCache(pairs) makes one of (key, value) pairs."
    )
