"""The uncached pass in another composition: the same sums, taken as decode steps take them.

A library multiplies one row of activations by the weights in another order than many rows, and rounds
otherwise: twice as far and more where its product of many rows adds in blocks and that of one row does
not. What a decode step rounds to can so be measured without a cache.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

PRODUCTS = {torch.nn.functional.linear: 0, torch.addmm: 1}  # where the activations stand


class Singly(TorchFunctionMode):
    """Inside, each product of weights with `tokens` rows takes those in front of the last `count`
    together, and the last ones row by row. Nothing is mutated."""

    def __init__(self, tokens: int, count: int):
        super().__init__()
        self.tokens, self.lengths = tokens, [tokens - count] * (tokens > count) + [1] * count

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        place, kwargs = PRODUCTS.get(function), kwargs or {}
        if place is None or len(args) <= place or args[place].shape[-2:-1] != (self.tokens,):
            return function(*args, **kwargs)
        before, rows, after = args[:place], args[place].split(self.lengths, -2), args[place + 1 :]
        return torch.cat([function(*before, part, *after, **kwargs) for part in rows], -2)
