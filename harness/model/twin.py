"""A twin for questions of logic: a model's first layers, as many as hold one of each kind.

Positions, windows, caches and the feeding of recurrent state are the model's own, because class,
config and weights are; only the depth differs. Nothing of the model is mutated.
"""

import copy
from typing import Any

import torch
from torch import nn


def first_layers(model: Any) -> Any:
    """A model of `model`'s class with its first layers, over the same weights: as many layers as hold
    one of each kind (all of them, where the last is the first of its kind)."""
    depth = min(
        max(kinds_seen(model), 2), int(model.config.get_text_config(decoder=True).num_hidden_layers)
    )
    config = copy.deepcopy(model.config)
    text = config.get_text_config(decoder=True)
    _shorten(text, int(text.num_hidden_layers), depth)
    with torch.device("meta"):
        short = type(model)(config)
    weights = model.state_dict()
    shared = {name: weights[name] for name in short.state_dict()}
    short.load_state_dict(shared, assign=True)
    here = dict(model.named_buffers())
    for name, _ in list(short.named_buffers()):  # what no state dict holds: RoPE's frequencies
        place, _, leaf = name.rpartition(".")
        short.get_submodule(place)._buffers[leaf] = here[name]
    short.tie_weights()
    return short.eval()


def kinds_seen(model: Any) -> int:
    """How many first layers of `model` hold one of each kind: two layers are of a kind when their
    modules are of the same classes and the config gives them the same type."""
    text = model.config.get_text_config(decoder=True)
    depth = int(text.num_hidden_layers)
    layers = next(
        (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == depth), None
    )
    if layers is None:
        return depth
    types = getattr(text, "layer_types", None) or [None] * depth
    kinds = [
        (types[i], tuple(type(part).__name__ for part in layer.modules()))
        for i, layer in enumerate(layers)
    ]
    first = {kind: i for i, kind in reversed(list(enumerate(kinds)))}
    return max(first.values()) + 1


def _shorten(config: Any, depth: int, layers: int) -> None:
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == depth:
            setattr(config, name, value[:layers])
    config.num_hidden_layers = layers
