"""Linear layers read as fast as memory allows: few tokens meet large weights streamed (kernels/stream.py),
in float32 or better whatever the weights are. Anything but a plain `nn.Linear` is called as it is."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.functional import linear as dense

from harness.cache.kernels import stream

_FEW = 4  # tokens; with more, the library reads a weight once for all of them as well as we do


def is_plain(module: torch.nn.Module) -> bool:
    """Whether `module` is a linear layer that nobody listens to or has wrapped."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) is torch.nn.Linear and not hooked and "forward" not in module.__dict__


def linear(module: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """`module(hidden)` for a linear layer: `[batch, new, in]` to `[batch, new, out]`."""
    return linears(hidden, module)[0]


def linears(hidden: torch.Tensor, *modules: torch.nn.Module) -> list[torch.Tensor]:
    """Each linear layer's output for the same `hidden` `[batch, new, in]`, all in one go."""
    made = _streamed(hidden, modules) if all(map(is_plain, modules)) else None
    return [module(hidden) for module in modules] if made is None else made


@contextmanager
def streaming(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """While this lasts, the plain linear layers among `modules` read their weights streamed, wherever
    a model's own forward calls them."""
    lent = [module for module in modules if is_plain(module)]
    try:
        for module in lent:
            module.__dict__["forward"] = partial(_forward, module)
        yield
    finally:
        for module in lent:
            module.__dict__.pop("forward", None)


def _forward(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    made = _streamed(hidden, (module,))
    return dense(hidden, module.weight, module.bias) if made is None else made[0]


def _streamed(hidden: torch.Tensor, modules: tuple[Any, ...]) -> list[torch.Tensor] | None:
    """Each output, or None where streaming would not be faster."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    if rows.shape[0] > _FEW:
        return None
    weights: list[Any] = [module.weight for module in modules]
    numbers = sum(weight.numel() for weight in weights)
    if hidden.dtype != weights[0].dtype or not stream.serves(rows.shape[0], numbers, *weights):
        return None
    made = []
    for module, out in zip(modules, stream.project(rows, weights), strict=True):
        out = out if module.bias is None else out + module.bias
        made.append(out.view(*hidden.shape[:-1], -1).to(hidden.dtype))
    return made
