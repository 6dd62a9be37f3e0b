"""What a model is: digests of its weights by Big 8+4 element, of the buffers saved with them, its
config, its positions as loaded.

Modules are told apart by what they are (an embedding, a norm) or where they are (inside attention),
never by a list of models. Nothing is mutated.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from harness.snapshot.digest import digest_document, digest_named, digest_tensor

# bookkeeping that does not change what the model computes, or that is recorded elsewhere
_IGNORED = {
    "_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache",
    "_attn_implementation", "_attn_implementation_internal", "_attn_implementation_autoset",
    "output_attentions", "output_hidden_states", "return_dict", "is_encoder_decoder",
}  # fmt: skip


def documents(model: Any, digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """JSON-able identity of `model` for elements 2, 3, 6, 7 and 8 (weights as digests).

    digests: of every parameter, as `weights` makes them, where they are known already.
    """
    digests = weights(model) if digests is None else digests
    groups = {
        group: {"tensors": len(tensors), "digest": _together(tensors, digests)}
        for group, tensors in _groups(model).items()
    }
    config = model.config.get_text_config(decoder=True)
    generation = getattr(model, "generation_config", None)
    return {
        "token_embeddings": groups["embeddings"],
        "positions": {
            **_rotary(model, config),
            "learned": groups["positions"],
            "max_positions": getattr(config, "max_position_embeddings", None),
        },
        "layer_norm": {**groups["norms"], "epsilon": _epsilons(model)},
        "attention_weights": {**groups["attention"], "scaling": _scalings(model)},
        "model_config": {
            "config": _clean(model.config.to_dict()),
            "generation": _clean(generation.to_dict()) if generation is not None else {},
            "other_weights": groups["other"],
            **({"buffers": kept} if (kept := _buffers(model)) else {}),
            **({"adapters": switched} if (switched := adapters(model)) else {}),
        },
    }


def adapters(model: Any) -> dict[str, Any]:
    """PEFT adapters as the layers have them, empty without any: which are switched on, how each of
    those is built, which are merged into the weights. Loaded ones that are switched off are left out:
    they compute nothing."""
    layers = [m for m in model.modules() if hasattr(m, "merged_adapters")]
    if not layers:
        return {}
    active = sorted({name for layer in layers for name in layer.active_adapters})
    settings = getattr(model, "peft_config", None) or {}
    known = {name: _clean(settings[name].to_dict()) for name in active if name in settings}
    return {
        "active": active,
        "settings": {
            name: {"kind": str(adapter.get("peft_type")), "digest": digest_document(adapter)}
            for name, adapter in known.items()
        },
        "merged": sorted({name for layer in layers for name in layer.merged_adapters}),
        "disabled": any(bool(layer.disable_adapters) for layer in layers),
    }


def _idle(model: Any) -> set[str]:
    """Names of adapters that are loaded and switched off."""
    settings = getattr(model, "peft_config", None)
    return set(settings or ()) - set(adapters(model).get("active", settings or ()))


def _groups(model: Any) -> dict[str, dict[str, Any]]:
    """Every parameter, by group; tied weights appear under each name."""
    groups: dict[str, dict[str, Any]] = {
        k: {} for k in ("embeddings", "positions", "norms", "attention", "other")
    }
    token_table, idle = model.get_input_embeddings(), _idle(model)
    for path, module in model.named_modules():
        if idle and idle & {*path.split(".")}:
            continue
        for name, tensor in module.named_parameters(recurse=False, remove_duplicate=False):
            groups[_group(path, module, token_table)][f"{path}.{name}".strip(".")] = tensor
    return groups


def buffers(model: Any) -> dict[str, Any]:
    """The buffers that are saved with the weights, by name: what a router adds to its scores, say.
    Those of adapters that are switched off are left out."""
    idle = _idle(model)
    return {
        f"{path}.{name}".strip("."): tensor
        for path, module in model.named_modules()
        if not idle & {*path.split(".")}
        for name, tensor in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }


def _buffers(model: Any) -> dict[str, Any]:
    kept = buffers(model)
    return {"tensors": len(kept), "digest": digest_named(kept)} if kept else {}


def _group(path: str, module: nn.Module, token_table: nn.Module) -> str:
    if module is token_table:
        return "embeddings"
    if isinstance(module, nn.Embedding):
        return "positions"
    if "norm" in type(module).__name__.lower():
        return "norms"
    return "attention" if any("att" in part for part in path.lower().split(".")) else "other"


def weights(model: Any) -> dict[str, str]:
    """Digest of every parameter by name, tied ones under each of theirs: all of them are read once."""
    known: dict[int, str] = {}
    digests = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if id(tensor) not in known:
            known[id(tensor)] = digest_tensor(tensor)
        digests[name] = known[id(tensor)]
    return digests


def _together(tensors: dict[str, Any], digests: Mapping[str, str]) -> str:
    """One digest over names, dtypes, shapes and bytes (see `snapshot.digest.digest_named`)."""
    rows = [[n, str(t.dtype), list(t.shape), digests[n]] for n, t in sorted(tensors.items())]
    return digest_document(rows)


def adapts(module: nn.Module, buffer: str) -> bool:
    """Whether `buffer` of `module` holds RoPE frequencies that each forward sets by the length of its
    context, so that they say nothing but what ran last."""
    kind: Any = getattr(module, "rope_type", None)
    if isinstance(kind, Mapping):
        kind = kind.get(buffer.removesuffix("inv_freq").rstrip("_"))
    return buffer.endswith("inv_freq") and str(kind) in ("dynamic", "longrope")


def _rotary(model: Any, config: Any) -> dict[str, Any]:
    """RoPE as loaded: the inverse frequencies and scalings that the modules really hold; the original
    ones of those that follow the length of the context."""
    frequencies = {
        f"{path}.{name}".strip("."): digest_tensor(_original(module, name, buffer))
        for path, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and not name.endswith("original_inv_freq")
    }
    scaling = {
        path: float(module.attention_scaling)
        for path, module in model.named_modules()
        if isinstance(getattr(module, "attention_scaling", None), int | float)
    }
    return {
        "scheme": "rotary" if frequencies else "learned or none",
        "inverse_frequencies": digest_document(frequencies),
        "attention_scaling": scaling,
        "parameters": _clean(getattr(config, "rope_parameters", None) or {}),
    }


def _original(module: nn.Module, name: str, buffer: Any) -> Any:
    original = f"{name.removesuffix('inv_freq')}original_inv_freq"
    return getattr(module, original, buffer) if adapts(module, name) else buffer


def _epsilons(model: Any) -> list[float]:
    epsilons = {
        float(value)
        for _, module in model.named_modules()
        if "norm" in type(module).__name__.lower()
        for value in [getattr(module, "eps", getattr(module, "variance_epsilon", None))]
        if isinstance(value, int | float)
    }
    return sorted(epsilons)


def _scalings(model: Any) -> list[float]:
    scalings = {
        float(module.scaling)
        for path, module in model.named_modules()
        if isinstance(getattr(module, "scaling", None), int | float)
    }
    return sorted(scalings)


def _clean(value: Any) -> Any:
    """Only JSON values, without bookkeeping; infinities and odd objects as text."""
    if isinstance(value, dict):
        return {str(k): _clean(v) for k, v in value.items() if str(k) not in _IGNORED}
    if isinstance(value, list | tuple | set):
        return [_clean(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
