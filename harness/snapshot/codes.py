"""Keys or values kept as codes: what quantized bytes mean, and nothing about how they were chosen.

`number = code * scale + zero`, one scale (and one zero, where there is one) for every block of
`span` neighbouring tokens and numbers of a head: per token is a span of (1, group), per channel one of
(group, 1). Codes below eight bits are packed, the first in the lowest bits. Every number is decoded
on its own, so that a block decoded alone equals the same block of the whole, bit by bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
PARTS = ("codes", "scale", "zero")


@dataclass(frozen=True)
class Codes:
    """Stands in a Segment where `[batch, kv_heads, tokens, head_dim]` of keys or values would.

    codes: `[batch, kv_heads, tokens, bytes]`: int8, a float8, or uint8 with `8 // bits` codes in each.
    scale, zero: `[batch, kv_heads, token spans, number spans]`; zero: None where code 0 is 0.
    width: head_dim. span: (tokens, numbers) that share a scale. skip: tokens of the first span that
    were cut away. dtype: of the numbers that `dense` gives.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None
    bits: int
    width: int
    span: tuple[int, int]
    dtype: torch.dtype
    skip: int = 0

    @property
    def shape(self) -> torch.Size:
        """Of what `dense` gives."""
        return torch.Size((*self.codes.shape[:3], self.width))

    @property
    def device(self) -> torch.device:
        return self.codes.device

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for _, tensor in self.tensors())

    def numel(self) -> int:
        return self.shape.numel()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """`(part, tensor)` in stored order."""
        yield "codes", self.codes
        yield "scale", self.scale
        if self.zero is not None:
            yield "zero", self.zero

    def moved(self, move: Callable[[torch.Tensor], torch.Tensor]) -> "Codes":
        """The same codes with every tensor where `move` puts it."""
        zero = None if self.zero is None else move(self.zero)
        return replace(self, codes=move(self.codes), scale=move(self.scale), zero=zero)

    def __getitem__(self, at: tuple[slice, ...]) -> "Codes":
        """`codes[:, :, start:stop]`, the only cut there is: tokens, as views."""
        *whole, tokens = at
        if len(whole) != 2 or any(cut != slice(None) for cut in whole) or tokens.step is not None:
            raise IndexError(f"codes are cut by tokens only, not by {at}")
        start, stop, _ = tokens.indices(self.codes.shape[2])
        first, skip = divmod(start + self.skip, self.span[0])
        last = -(-(stop + self.skip) // self.span[0])
        scale, zero = (None if t is None else t[:, :, first:last] for t in (self.scale, self.zero))
        assert scale is not None
        return replace(self, codes=self.codes[:, :, start:stop], scale=scale, zero=zero, skip=skip)

    def dense(self) -> torch.Tensor:
        """The numbers, `[batch, kv_heads, tokens, head_dim]` of `dtype`, newly made."""
        work = torch.promote_types(self.dtype, torch.float32)
        numbers = unpacked(self.codes, self.bits, self.width).to(work)
        numbers = numbers.mul_(self.spread(self.scale.to(work)))
        if self.zero is not None:
            numbers = numbers.add_(self.spread(self.zero.to(work)))
        return numbers.to(self.dtype)

    def spread(self, each: torch.Tensor) -> torch.Tensor:
        """What belongs to spans, for every number (or broadcast where one span is everything)."""
        tokens, numbers = self.span
        if each.shape[3] > 1:
            each = each.repeat_interleave(numbers, 3)[..., : self.width]
        if each.shape[2] > 1:
            each = each.repeat_interleave(tokens, 2)
            each = each[:, :, self.skip : self.skip + self.codes.shape[2]]
        return each

    @classmethod
    def stacked(cls, parts: "Sequence[Codes]") -> "Codes":
        """Codes that are described alike as the rows of one; a copy."""
        zeros = [c.zero for c in parts if c.zero is not None]
        return replace(
            parts[0],
            codes=torch.cat([c.codes for c in parts]),
            scale=torch.cat([c.scale for c in parts]),
            zero=torch.cat(zeros) if zeros else None,
        )

    def document(self) -> dict[str, Any]:
        """What a manifest says beside the tensors, JSON-able."""
        return {
            "bits": self.bits,
            "width": self.width,
            "span": list(self.span),
            "skip": self.skip,
            "dtype": str(self.dtype).removeprefix("torch."),
            "zero": self.zero is not None,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> "Codes":
        """Back from a document that was checked, and its tensors by part."""
        dtype = getattr(torch, document["dtype"])
        return cls(
            tensors["codes"], tensors["scale"], tensors.get("zero"), document["bits"],
            document["width"], tuple(document["span"]), dtype, document["skip"],
        )  # fmt: skip


def dense(stored: "torch.Tensor | Codes") -> torch.Tensor:
    """Keys or values as a tensor; no copy where they are one."""
    return stored.dense() if isinstance(stored, Codes) else stored


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 codes below `2**bits`, `[..., width]`, as `[..., ceil(width * bits / 8)]` bytes."""
    each = 8 // bits
    if each == 1:
        return codes
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % each))
    codes = codes.unflatten(-1, (-1, each))
    out = codes[..., 0].clone()
    for place in range(1, each):
        out |= codes[..., place] << (place * bits)
    return out


def unpacked(stored: torch.Tensor, bits: int, width: int) -> torch.Tensor:
    """The codes again, `[..., width]`."""
    each = 8 // bits
    if each == 1:
        return stored
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=stored.device)
    return ((stored[..., None] >> shifts) & (2**bits - 1)).flatten(-2)[..., :width]


def faults(document: Any, shapes: Mapping[str, tuple[str, list[int]]], tokens: int) -> list[str]:
    """What in a manifest's description of codes does not fit its tensors: `shapes` has `(dtype, shape)`
    by part. Raises nothing, whatever the document holds."""
    match document:
        case {"bits": 2 | 4 | 8 as bits, "width": int(width), "span": [int(span), int(group)],
              "skip": int(skip), "dtype": "float64" | "float32" | "bfloat16" | "float16",
              "zero": bool(zero)} if len(document) == 6:  # fmt: skip
            pass
        case _:
            return ["is not described as codes are"]
    if not (0 < width < 1 << 20 and span > 0 and group > 0 and 0 <= skip < span):
        return ["has a span or a width that cannot be"]
    if set(shapes) != {"codes", "scale", *(["zero"] if zero else [])}:
        return [f"has {', '.join(sorted(shapes))}"]
    kinds = ("uint8",) if bits < 8 else ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
    kind, shape = shapes["codes"]
    problems = [] if kind in kinds else [f"has codes of {kind}"]
    if len(shape) != 4 or shape[2:] != [tokens, -(-width * bits // 8)]:
        return [*problems, f"has codes {shape} for {tokens} tokens of {width} numbers"]
    wanted = [*shape[:2], -(-(skip + tokens) // span), -(-width // group)]
    for part in ("scale", "zero")[: 1 + zero]:
        kind, shape = shapes[part]
        if not kind.startswith(("float16", "float32", "float64", "bfloat16")) or shape != wanted:
            problems.append(f"has a {part} of {kind} {shape}, wanted {wanted}")
    return problems


def coded_as(entry: dict[str, Any], segment: int) -> dict[str, Any] | None:
    """How a layer's entry in element +3 describes the codes of `segment`; None for a plain one. Raises
    for an entry that no writer makes."""
    if "coded" not in entry:
        return None
    listed = entry["coded"]
    if len(listed) != len(entry["segments"]) or all(e is None for e in listed):
        raise ValueError("codes are described for other segments than there are")
    if listed[segment] is not None and set(listed[segment]) != {"key", "value"}:
        raise ValueError("codes are described for something else than key and value")
    return listed[segment]


def segment_faults(
    place: str, described: dict[str, Any], tokens: int, rows: dict[str, dict[str, Any]]
) -> tuple[set[str], list[str]]:
    """Names of the tensors of a coded segment, and what is wrong with those there are."""
    names, problems = {f"{place}.positions"}, []
    for part in ("key", "value"):
        document = described[part]
        mine = {f"{place}.{part}_{p}": p for p in PARTS if p != "zero" or document["zero"]}
        names |= set(mine)
        shapes = {p: (rows[n]["dtype"], rows[n]["shape"]) for n, p in mine.items() if n in rows}
        problems += [f"{place}.{part} {wrong}" for wrong in faults(document, shapes, tokens)]
    codes, row = rows.get(f"{place}.key_codes"), rows.get(f"{place}.positions")
    if codes is not None and row is not None:
        shape = codes["shape"]
        if row["shape"] not in ([*shape[:1], tokens], [*shape[:2], tokens]):
            problems.append(f"{place}: positions {row['shape']}, codes {shape}, declared {tokens}")
    return names, problems


def coded(segments: Sequence[Any]) -> dict[str, Any]:
    """What element +3 says of segments that are codes: nothing where there is none, else `coded`, one
    entry per segment, None for a plain one (which may be given as None)."""
    entries = [_document(segment) for segment in segments]
    return {} if all(entry is None for entry in entries) else {"coded": entries}


def _document(segment: Any) -> dict[str, Any] | None:
    if segment is None or not isinstance(segment.key, Codes):
        return None
    return {"key": segment.key.document(), "value": segment.value.document()}
