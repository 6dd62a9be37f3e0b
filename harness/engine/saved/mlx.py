"""An mlx-lm prompt cache: a safetensors file whose metadata says of which classes its layers are."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch

from harness.engine.saved import blocks
from harness.engine.saved.base import LAYERS_LIMIT, Layers, Saved
from harness.foreign import Budget, opened, parsed
from harness.snapshot.codes import Codes

HEADER_LIMIT = 2**24  # bytes of a safetensors header that are read
PLAIN, CODED = "KVCache", "QuantizedKVCache"  # hold every token, oldest first
WAYS = 8  # in which a full ring can have come about that are tried
RING = "RotatingKVCache"  # holds the first few and the latest


def read(path: Path) -> Saved:
    """Only the header is read at first: names, shapes, and mlx-lm's own metadata."""
    with opened(path) as file:
        size = struct.unpack("<Q", file.read(8))[0]
        if size > min(HEADER_LIMIT, path.stat().st_size - 8):
            raise ValueError(f"its header claims {size} bytes")
        header = parsed(file.read(size), Budget())
    said = header.pop("__metadata__", {})
    kinds = {int(k[2:]): v for k, v in said.items() if k.startswith("1.") and k[2:].isdigit()}
    if not 0 < len(kinds) <= LAYERS_LIMIT:
        raise ValueError("it is a safetensors file, but no prompt cache of mlx-lm")
    rows = []
    for layer, kind in sorted(kinds.items()):
        first = header.get(f"{layer}.0") or header.get(f"{layer}.0.0", {})
        shape, dtype = first.get("shape"), first.get("dtype")
        rows.append({"layer": layer, "kind": kind, "shape": shape, "dtype": dtype})
    named = {k[2:]: v for k, v in said.items() if k.startswith("0.")}
    facts = {"metadata": named, "layers": len(rows)}
    arrays = Arrays(path, sorted(kinds))
    ring = arrays.ring() if set(kinds.values()) == {RING} else None
    coded = next((r for r in rows if r["kind"] == CODED), None)
    if ring is not None:
        facts |= {"tokens": ring.tokens, "kept": "all" if ring.whole else len(ring.positions)}
    grid = (arrays.number(coded["layer"], 4), arrays.number(coded["layer"], 3)) if coded else None

    def pairs() -> Layers:
        known = (PLAIN, CODED) if ring is None else (RING,)
        if other := sorted({str(k) for k in kinds.values()} - {*known}):
            raise ValueError(
                f"a {other[0]} is not read here: it holds no keys and values of every token, or some "
                "layers of a model with windows hold fewer than others"
            )
        if ring is not None:
            return [arrays.rung(layer, ring) for layer in sorted(kinds)]
        return [
            arrays.coded(la) if k == CODED else arrays.plain(la) for la, k in sorted(kinds.items())
        ]

    dropped = ring is not None and not ring.whole
    positions, seen = (ring.positions, ring.seen) if ring and dropped else (None, None)
    holds = frozenset({"kv_cache"})
    return Saved("mlx-lm prompt cache", facts, rows, holds, [], pairs, positions, grid, seen)


@dataclass(frozen=True)
class Ring:
    """What a rotating cache still looks at. tokens: that it saw; keep, size: the first that stay, and how many
    it holds; places: of the kept ones, oldest first, in its arrays; positions: theirs; prompts: lengths
    that the part read at once can have had, the others were decoded one by one."""

    tokens: int
    keep: int
    size: int
    places: list[int]
    positions: list[int]
    prompts: list[int]

    @property
    def whole(self) -> bool:
        return len(self.positions) == self.tokens

    def seen(self) -> Iterator[torch.Tensor]:
        """How many tokens the file claims is nothing to go by: to be asked once they are there. A prompt is read with a window of the last `size`; a decoded token reads the first `keep` and the
        latest, `size` in all. Source: `RotatingKVCache` of mlx-lm 0.32."""
        place = torch.arange(self.tokens)
        back = place[:, None] - place
        prompt = (back >= 0) & (back < self.size)
        decoded = (back >= 0) & ((place < self.keep) | (back < self.size - self.keep))
        return (torch.where((place < p)[:, None], prompt, decoded) for p in self.prompts)


class Arrays:
    """The arrays of a file by layer and place, read when they are asked for."""

    def __init__(self, path: Path, layers: list[int]):
        self._path, self._layers = path, layers

    @cached_property
    def _all(self) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        arrays = load_file(self._path)
        if any(0 in array.shape for array in arrays.values()):  # of any length, in no bytes
            raise ValueError("it holds an array without numbers")
        return arrays

    def number(self, layer: int, place: int) -> int:
        """A number beside the arrays. Raises ValueError in files of versions that put it elsewhere."""
        if (tensor := self._all.get(f"{layer}.{place}")) is None or tensor.numel() != 1:
            raise ValueError(f"layer {layer} does not say its numbers: written by another version")
        return int(tensor)

    def plain(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values `[batch, kv_heads, tokens, head_dim]` without the room to grow that follows."""
        key, value = (self._all[f"{layer}.{part}"] for part in (0, 1))
        used = self.number(layer, 2) if f"{layer}.2" in self._all else key.shape[2]
        return self._used(layer, key, used), self._used(layer, value, used)

    def coded(self, layer: int) -> tuple[Codes, Codes]:
        """The same of a quantized cache, as its own codes."""
        used, group, bits = (self.number(layer, place) for place in (2, 3, 4))

        def codes(part: int) -> Codes:
            words, scale, bias = (
                self._used(layer, self._all[f"{layer}.{part}.{i}"], used) for i in range(3)
            )
            return blocks.mlx(words, scale, bias, group, bits)

        return codes(0), codes(1)

    def ring(self) -> Ring:
        """Raises ValueError where layers hold different tokens, or none."""
        rings = [self._ring(layer) for layer in self._layers]
        if any(ring != rings[0] for ring in rings):
            raise ValueError("its layers hold different tokens")
        return rings[0]

    def rung(self, layer: int, ring: Ring) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = (self._all[f"{layer}.{part}"][:, :, ring.places] for part in (0, 1))
        return key, value

    def _ring(self, layer: int) -> Ring:
        """A ring is written from `first` on and begins anew behind what it always keeps; after a prompt it
        may hold more than its size, which the next token drops."""
        length = self._all[f"{layer}.0"].shape[2]
        tokens, keep, size, at = (self.number(layer, place) for place in (2, 3, 4, 5))
        if not (tokens > 0 and 0 <= keep < size and 0 <= at <= length and keep <= length):
            raise ValueError(
                f"layer {layer} says {tokens} tokens, {keep} kept of {size}, next at {at}"
            )
        if at == length:
            order = [*range(length)]
        elif at < tokens and tokens > length:
            order = [*range(keep), *range(max(at, keep), length), *range(keep, at)]
        else:
            order = [*range(at)]
        original = (
            [*range(keep), *range(tokens - len(order) + keep, tokens)]
            if len(order) < tokens
            else [*range(tokens)]
        )
        if len(order) > tokens:
            raise ValueError(f"layer {layer} holds {len(order)} tokens and saw {tokens}")
        drop = max(len(order) - size, 0)
        kept = [i for i in range(len(order)) if i < keep or i >= keep + drop]
        prompts = [tokens]
        if length <= size:  # written in place: since the prompt, so many tokens or rounds more
            begun = tokens - (at - keep)
            rounds = range(begun, 0, keep - size)
            prompts = [*islice((p for p in rounds if p > size), WAYS), min(begun, size)]
        places, positions = [order[i] for i in kept], [original[i] for i in kept]
        return Ring(tokens, keep, size, places, positions, prompts)

    @staticmethod
    def _used(layer: int, tensor: torch.Tensor, used: int) -> torch.Tensor:
        if not 0 < used <= tensor.shape[2]:
            raise ValueError(f"layer {layer} says that it holds {used} tokens of {tensor.shape[2]}")
        return tensor[:, :, :used]
