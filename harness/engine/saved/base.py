"""What is known of a file that another program saved."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.snapshot.codes import Codes
from harness.snapshot.elements import ELEMENTS

LAYERS_LIMIT = 4096
Layers = list[tuple[torch.Tensor | Codes, torch.Tensor | Codes]]


def _none() -> Layers:
    raise ValueError("its keys and values are in a form that is not read")


@dataclass(frozen=True)
class Saved:
    """kind: what wrote it. layers: a row each (`layer`, `kind`, `shape`, `dtype`). tokens: the ids, where
    they are in the file. holds: names of the elements in it. keys_and_values: gives a pair per layer,
    `[batch, kv_heads, tokens, head_dim]`, or `[1, 1, tokens, kv_heads * head_dim]` where the file does
    not say how many heads there are, as numbers or as codes; raises ValueError for a cache that does not
    hold what a continuation needs. positions: of the tokens that are held, where some were dropped. seen: gives
    `[tokens, tokens]` each, which tokens each one may have read then, in every way the file can have come about.
    grid: bits of a code and numbers that share a scale, at their coarsest, where any are kept as codes.
    """

    kind: str
    facts: dict[str, Any]
    layers: list[dict[str, Any]]
    holds: frozenset[str]
    tokens: list[int] = field(default_factory=list)
    keys_and_values: Callable[[], Layers] = _none
    positions: list[int] | None = None
    grid: tuple[int, int] | None = None
    seen: Callable[[], Iterator[torch.Tensor]] | None = None

    @property
    def lacks(self) -> list[str]:
        """Elements that a continuation needs and that are not in the file."""
        return [e.name for e in ELEMENTS if e.name not in self.holds]


def halves(keys: torch.Tensor) -> torch.Tensor:
    """Keys `[..., head_dim]` whose RoPE turned neighbours (llama.cpp's order for Llama), in the library's
    order, which turns the first half with the second."""
    return torch.cat([keys[..., 0::2], keys[..., 1::2]], -1)
