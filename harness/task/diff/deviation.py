"""Where two states begin to differ: field by field, tensor by tensor, bit by bit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch

from harness.errors import InputProblem
from harness.pipeline.snapshot import listed, words
from harness.report.terminal.console import number
from harness.snapshot.elements import called
from harness.snapshot.state import State

FIRST = ("token_ids", "attention_mask", "next_position")  # what was read explains all the rest
MODEL = ("token_embeddings", "attention_weights", "layer_norm", "model_config", "tokenizer")
AT = re.compile(r"\[(\d+), ?(\d+)\]")  # row and token, from 0
MISSING = "(missing)"
TENSORS = (
    "next_position",
    "token_ids",
    "attention_mask",
    "logits",
    "rng",
)  # beside those of layers
BRIEF = ["what and where", "a", "b", "how much"]
HELD = re.compile(r"layers\[([\d, to]+)\]\.(kept|seen)")
LAYERED = re.compile(r"layers\[([\d, to]+)\]\.(.+)")
CODED = {"coded": "codes"}  # a part of the document of a layer, in words
PLACES = {
    ("next_position", "[0]"): "of the next token",
    ("generation", "begun"): "where what was generated begins",
}
AFTER_OTHERS = "not compared: after other tokens"
DIGEST = re.compile(r"[0-9a-f]{14,}(\.\.\.)?")


@dataclass(frozen=True)
class Deviation:
    """One differing field or tensor. where: path or index of the first difference; bits: how many
    differ there, and the number of the lowest; amount: elements that differ and the largest difference; gap: that, of floats.
    derived: it follows from the other tokens that were read."""

    what: str
    where: str
    a: str
    b: str
    bits: str = ""
    amount: str = ""
    gap: float | None = None
    derived: bool = False

    def row(self) -> list[str]:
        return [self.what, self.place, self.a, self.b, self.bits, self.amount]

    @property
    def place(self) -> str:
        """`where`, as people are told of it; tokens are counted from 1."""
        if self.what == "token_ids" and (at := AT.fullmatch(self.where)):
            row, token = (int(number) + 1 for number in at.groups())
            return f"token {token} (index {token - 1})" + f" of row {row}" * (row > 1)
        if self.what == "kv_format" and (at := HELD.fullmatch(self.where)):
            return f"tokens {at[2]} by layer{'s' * (not at[1].isdigit())} {at[1]}"
        if self.what == "kv_format" and (at := LAYERED.fullmatch(self.where)):
            return f"{CODED.get(at[2], at[2])} of layer{'s' * (not at[1].isdigit())} {at[1]}"
        if told := PLACES.get((self.what, self.where)):
            return told
        return called(self.what, self.where)

    @property
    def follows(self) -> bool:
        """Whether it is no difference of its own: what comes after other tokens, a digest of what differs, how near its proof came when it was
        saved, or codes of which only one side has any."""
        codes = ".segment." in self.what and self.where == "one side only"
        return self.derived or self.what == "proof" or "digest" in self.where or codes

    def brief(self) -> list[str]:
        """What a terminal has room for: `BRIEF`. The page and `result.json` have every digit."""
        short = [_brief(side) for side in (self.a, self.b)]
        a, b = short if short[0] != short[1] else (self.a, self.b)
        return [
            f"{self.what} {self.place}",
            a,
            b,
            "; ".join(filter(None, (self.amount, self.bits and f"the first by {self.bits}"))),
        ]


def _brief(side: str) -> str:
    """A digest by its first digits, a float by six."""
    try:
        return f"{float(side):.6g}" if "." in side else side
    except ValueError:
        return DIGEST.sub(lambda match: match[0][:10] + "...", side)


def explained(one: State, two: State) -> list[Deviation]:
    """`differences`, those first that explain the others: another text has other K/V and other digests.
    The first other token is shown as it reads."""
    return [_read(d, one, two) for d in sorted(differences(one, two), key=_rank)]


def read_alike(one: State, two: State) -> bool:
    """Whether both have read the same tokens: their logits are those of one context."""
    return torch.equal(one.token_ids, two.token_ids)


@dataclass(frozen=True)
class Continuation:
    """State `longer` read what `shorter` read, and `more` tokens. unchanged: it holds the same keys and values of
    the first `tokens`, bit for bit; apart: the first that differs, of two that hold them."""

    longer: str
    shorter: str
    tokens: int
    more: int
    unchanged: bool = False
    apart: Deviation | None = None

    def __str__(self) -> str:
        text = f"state {self.longer} continues state {self.shorter}: the first {self.tokens} tokens are the same"
        if self.unchanged:
            text += ", and so are their K/V, bit for bit"
        elif self.apart:
            amount = f" ({self.apart.amount})" if self.apart.amount else ""
            text += f", but not their K/V, from {self.apart.what} on{amount}"
        return f"{text}; it read {self.more} more"


def continued(one: State, two: State) -> dict[str, str] | None:
    """Which of `a` and `b` is the `longer`, and which the `shorter`, where the one holds all that the other
    read, masked as it was, with the same keys and values bit for bit; None elsewhere."""
    made = continues(one, two)
    if made is None or not made.unchanged:
        return None
    few = made.tokens
    if not torch.equal(one.attention_mask[:, :few], two.attention_mask[:, :few]):
        return None
    return {"longer": made.longer, "shorter": made.shorter}


def continues(one: State, two: State, names: tuple[str, str] = ("a", "b")) -> Continuation | None:
    """How the longer state goes on from the shorter; None where neither does, and of two models."""
    if any(one.documents.get(name) != two.documents.get(name) for name in MODEL):
        return None
    if one.batch != two.batch or one.tokens == two.tokens:
        return None
    short, long = sorted((one, two), key=lambda state: state.tokens)
    tokens = short.tokens
    if not torch.equal(long.token_ids[:, :tokens], short.token_ids):
        return None
    longer, shorter = names[::-1] if long is two else names
    made = Continuation(longer, shorter, tokens, long.tokens - tokens)
    pairs = [(a, b) for a, b in zip(short.layers, long.layers, strict=False) if a.segments]
    if not pairs or not all(
        b.segments and torch.equal(a.positions, b.positions[..., : a.kept]) for a, b in pairs
    ):
        return made
    for a, b in pairs:
        for part in ("key", "value"):
            x, y = getattr(a, part), getattr(b, part)[:, :, : a.kept]
            if apart := tensor_difference(f"layer.{a.index}.{part}", x, y):
                return replace(made, apart=apart)
    return replace(made, unchanged=True)


def _rank(deviation: Deviation) -> int:
    what, where = deviation.what, deviation.where
    if what in FIRST:
        return FIRST.index(what)
    follows = what == "proof" or "digest" in where
    tensor = what.startswith("layer.") or what in ("logits", "rng")
    codes = deviation.where == "one side only"  # as its document has said
    return len(FIRST) + (3 if codes else 2 if follows else 1 if tensor else 0)


def _read(deviation: Deviation, one: State, two: State) -> Deviation:
    """A token id with its text, by each snapshot's own tokenizer; in words where an answer begins, and that
    logits after other tokens are no measure of anything."""
    if (deviation.what, deviation.where) == ("generation", "begun"):
        a, b = (_begun(side) for side in (deviation.a, deviation.b))
        return replace(deviation, a=a, b=b)
    if deviation.what == "logits" and not read_alike(one, two):
        return replace(deviation, bits="", amount=AFTER_OTHERS, gap=None)
    if deviation.what != "token_ids" or deviation.where == "form":
        return deviation
    pairs = ((deviation.a, one), (deviation.b, two))
    a, b = (f"{token}{_text(state, int(token))}" for token, state in pairs)
    return replace(deviation, a=a, b=b)


def _begun(side: str) -> str:
    return "nothing generated" if side == MISSING else f"behind token {side}"


def _text(state: State, token: int) -> str:
    try:
        said = words(state, [token])
    except InputProblem:
        return ""
    return "" if said is None else f" {said!r}"


def differences(one: State, two: State) -> Iterator[Deviation]:
    """Documents first, then tensors by name, in stored order; keys and values as numbers, whatever codes
    they are kept as. How segments are cut is no difference."""
    for name in sorted({*one.documents, *two.documents}):
        a, b = (_uncut(name, s.documents.get(name)) for s in (one, two))
        yield from _documents(name, "", a, b)
    for name in sorted({*one.tokenizer_files, *two.tokenizer_files}):
        a, b = one.tokenizer_files.get(name), two.tokenizer_files.get(name)
        if a != b:
            place = next(i for i, (x, y) in enumerate(zip_longest(a or b"", b or b"")) if x != y)
            yield Deviation(f"tokenizer/{name}", f"byte {place}", _size(a), _size(b))
    sides = dict(_tensors(one)), dict(_tensors(two))
    for name in dict.fromkeys(name for side in sides for name in side):
        a, b = (side.get(name) for side in sides)
        if name == "token_ids" and a is not None and b is not None and len(a) == len(b):
            few = min(
                a.shape[1], b.shape[1]
            )  # of texts of other lengths, where they part says more
            if a.shape != b.shape and (apart := tensor_difference(name, a[:, :few], b[:, :few])):
                yield apart
        if a is None or b is None:
            yield Deviation(name, "one side only", _form(a), _form(b))
        elif deviation := tensor_difference(name, a, b):
            yield deviation


def tensor_difference(name: str, a: torch.Tensor, b: torch.Tensor) -> Deviation | None:
    """The first differing element of two tensors, bit by bit; None when they are bit-equal. Floats of two types are
    compared as numbers, all of them."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        far = _largest(a, b) if a.shape == b.shape and _floats(a, b) else None
        amount = "" if far is None else f"at most {number(far)}"
        return Deviation(name, "form", _form(a), _form(b), "", amount, far)
    raw = [t.contiguous().reshape(-1).view(torch.uint8).view(-1, t.element_size()) for t in (a, b)]
    changed = raw[0] ^ raw[1]
    rows = changed.any(dim=1).nonzero()
    if not len(rows):
        return None
    flat = int(rows[0, 0])
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), a.shape)]
    bits = int.from_bytes(bytes(changed[flat].tolist()), "little")
    lowest = (bits & -bits).bit_length() - 1
    x, y = (t.reshape(-1)[flat].double().item() for t in (a, b))
    largest = _largest(a, b)
    amount = f"{len(rows)} of {a.numel()} elements" * (a.numel() > 1)
    amount += f", at most {number(largest)}" * a.is_floating_point()
    counts = not a.is_floating_point() and name != "rng"  # its values say it all
    few = (
        f"1 bit, bit {lowest}"
        if bits.bit_count() == 1
        else f"{bits.bit_count()} bits, from bit {lowest} up"
    )
    changes = "" if counts else few
    far = largest if a.is_floating_point() else None
    return Deviation(name, str(index), f"{x:.9g}", f"{y:.9g}", changes, amount, far)


def _floats(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.is_floating_point() and b.is_floating_point()


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest finite difference of two tensors of one shape, in float64; not a number where there is none."""
    gap = (a.double() - b.double()).abs()
    return float(gap[gap.isfinite()].max()) if bool(gap.isfinite().any()) else float("nan")


def compared(state: State) -> dict[str, int]:
    """How much of a state is laid beside another's."""
    tensors = [tensor for _, tensor in _tensors(state)]
    return {
        "tensors": len(tensors),
        "numbers": sum(tensor.numel() for tensor in tensors),
        "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "documents": len(state.documents),
        "tokenizer_files": len(state.tokenizer_files),
    }


def held(state: State) -> list[list[str]]:
    """Rows of all that is laid beside another's: every tensor with its form, every document and file by name."""
    tensors = [[what, _form(tensor)] for what, tensor in _tensors(state)]
    documents = [[name, "document"] for name in state.documents]
    return [*tensors, *documents, *([name, "tokenizer file"] for name in state.tokenizer_files)]


def _form(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return MISSING
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _documents(what: str, path: str, a: Any, b: Any) -> Iterator[Deviation]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            inner = (document.get(key, MISSING) for document in (a, b))
            yield from _documents(what, f"{path}.{key}".strip("."), *inner)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _documents(what, f"{path}[{i}]", x, y)
    elif repr(a) != repr(b):  # a zero has a sign, and 1 is not 1.0
        yield Deviation(what, path or "all", _short(a), _short(b))


def _short(value: Any) -> str:
    rows = value if isinstance(value, list) else []
    if rows and all(isinstance(v, dict) and ("policy" in v or "quantizer" in v) for v in rows):
        value = ", ".join(str(v.get("policy") or v.get("quantizer")) for v in rows)  # by stage
    elif bits := _bits(rows):
        value = f"of {' and '.join(map(str, bits))} bits"
    text = listed(value) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= 24 else f"{text[:21]}..."


def _bits(segments: list[Any]) -> list[int]:
    """Bits of the codes that the segments of a layer hold; empty of anything else."""
    parts = [part for coded in segments if isinstance(coded, dict) for part in coded.values()]
    whole = [part.get("bits") for part in parts if isinstance(part, dict)]
    return sorted({bits for bits in whole if isinstance(bits, int)})


def _uncut(name: str, document: Any) -> Any:
    """The document without how tokens are divided into segments, which is a matter of storage."""
    if name != "kv_format" or not document:
        return document
    layers = [
        {"kept" if key == "segments" else key: sum(value) if key == "segments" else value
         for key, value in layer.items()}
        for layer in document["layers"]
    ]  # fmt: skip
    return {**document, "layers": layers}


def _tensors(state: State) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of the state, each layer's segments joined, and codes as they are kept: other codes and
    scales may stand for the same numbers."""
    for layer in state.layers:
        if layer.segments:
            for part in ("key", "value", "positions"):
                yield f"layer.{layer.index}.{part}", getattr(layer, part)
        for place, segment in enumerate(layer.segments):
            for part, tensor in segment.tensors() if segment.coded else ():
                if part != "positions":  # the layer's hold them
                    yield f"layer.{layer.index}.segment.{place}.{part}", tensor
        for part, tensor in sorted(layer.recurrent.items()):
            yield f"layer.{layer.index}.{part}", tensor
        if layer.received is not None:
            yield f"layer.{layer.index}.received", layer.received
    for name in TENSORS:
        yield name, getattr(state, name)


def _size(data: bytes | None) -> str:
    return "missing" if data is None else f"{len(data)} bytes"
