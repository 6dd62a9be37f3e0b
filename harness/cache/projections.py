"""Linear layers read as fast as memory allows: few tokens meet large weights streamed (kernels/stream.py),
in float32 or better whatever the weights are. Anything but a plain `nn.Linear` is called as it is."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import linear as multiplied

from harness.attention.kernels.cpu import stream
from harness.attention.kernels.cpu.program import floats, readable

_FEW = 4  # tokens; with more, the library reads a weight once for all of them as well as we do


def is_plain(module: torch.nn.Module) -> bool:
    """Whether `module` is a linear layer that nobody listens to or has wrapped, with plain weights."""
    return (
        type(module) is torch.nn.Linear
        and untouched(module)
        and type(module._parameters.get("weight")) is torch.nn.Parameter
        and type(module._parameters.get("bias")) in (torch.nn.Parameter, type(None))
    )


def untouched(module: torch.nn.Module) -> bool:
    """Whether nobody listens to `module` or has wrapped its forward."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return not hooked and "forward" not in module.__dict__


def linear(module: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """`module(hidden)` for a linear layer: `[batch, new, in]` to `[batch, new, out]`."""
    return linears(hidden, module)[0]


def linears(hidden: torch.Tensor, *modules: torch.nn.Module) -> list[torch.Tensor]:
    """Each linear layer's output for the same `hidden` `[batch, new, in]`, all in one go."""
    if all(map(is_plain, modules)):
        layers = [(module.weight, module.bias) for module in modules]
        ready = _ready(hidden.numel() // hidden.shape[-1], hidden.dtype, layers)
        if ready is not None:
            return _run(ready, hidden, layers)
    return [module(hidden) for module in modules]


class Streamed:
    """A plain linear layer for few tokens at a time, with what is always the same made ready once.

    latest: shared by a model's layers, `[who was called last, with what]`. Layers that are called one
    after the other with the same `hidden` are computed together from the next time on: whoever comes
    first leaves the others' outputs for them to take.
    """

    def __init__(self, module: Any, latest: list[Any]):
        self.module = module
        self.lent = False
        self._latest = latest
        self._together = [self]
        self._waiting: Any = None
        self._prepared: tuple[Any, Any] = (None, None)  # what for, and the program

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the layer makes of `hidden` `[batch, new, in]`: `[batch, new, out]`."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[0] is hidden and waiting[1] == hidden._version:
            return waiting[2]
        first, latest = self._latest
        if latest is hidden and self not in first._together:
            first._together.append(self)
        else:
            self._latest[:] = self, hidden
        # nobody can tell whether a tensor of inference mode is changed before the others come
        alone = hidden.is_inference()
        together = (self, *(o for o in self._together[1:] if o.lent and not alone))
        made = self._made(hidden, together)
        if made is None:
            return multiplied(hidden, self.module.weight, self.module.bias)
        for other, out in zip(together[1:], made[1:], strict=True):
            other._waiting = (hidden, hidden._version, out)
        return made[0]

    def forget(self) -> None:
        """Let go of what a forward left behind; what nobody came for is not computed again."""
        if len(self._together) > 1:
            self._together = [o for o in self._together if o is self or o._waiting is None]
        self._waiting = None
        self._latest[:] = None, None

    def _made(
        self, hidden: torch.Tensor, together: tuple["Streamed", ...]
    ) -> list[torch.Tensor] | None:
        weights = [one.module._parameters for one in together]
        layers = [(one["weight"], one["bias"]) for one in weights]
        rows = hidden.numel() // hidden.shape[-1]
        places = [
            (w.data_ptr(), w.shape, w.stride(0), b is None or b.data_ptr()) for w, b in layers
        ]
        wanted = (rows, hidden.dtype, places)
        made_for, ready = self._prepared
        if wanted != made_for:
            ready = _ready(rows, hidden.dtype, layers)
            self._prepared = (wanted, ready)
        return None if ready is None else _run(ready, hidden, layers)


@contextmanager
def streaming(layers: Iterable[Streamed]) -> Iterator[None]:
    """While this lasts, a model's own forward calls `layers` instead of the modules they are for, but
    for those that somebody has wrapped or listens to."""
    lent = [layer for layer in layers if is_plain(layer.module)]
    try:
        for layer in lent:
            layer.module.__dict__["forward"] = layer
            layer.lent = True
        yield
    finally:
        for layer in lent:
            layer.module.__dict__.pop("forward", None)
            layer.lent = False
            layer.forget()


def _ready(rows: int, dtype: torch.dtype, layers: list[Any]) -> Any:
    """The program for `rows` tokens, or None where streaming would not be faster, or not be right."""
    weights = [weight for weight, _ in layers]
    numbers = sum(weight.numel() for weight in weights)
    if rows > _FEW or dtype != weights[0].dtype or not stream.serves(rows, numbers, *weights):
        return None
    return stream.projection(rows, layers) if readable(dtype, *(b for _, b in layers)) else None


def _run(ready: Any, hidden: torch.Tensor, layers: list[Any]) -> list[torch.Tensor]:
    made = [floats(*hidden.shape[:-1], len(weight)) for weight, _ in layers]
    ready.project(hidden.float().contiguous(), made)
    return made if hidden.dtype == torch.float32 else [out.to(hidden.dtype) for out in made]
