"""What of a state did not come back as it was saved."""

import torch

from harness.snapshot.state import State

ELEMENTS = {  # a tensor's stored name -> cause and element, as a diagnosis names them
    "next_position": ("position", "positions"),
    "positions": ("position", "positions"),
    "token_ids": ("token buffer", "token_ids"),
    "attention_mask": ("mask", "attention_mask"),
    "logits": ("logits", "logits"),
    "rng": ("identity", "generation"),
}


def parted(saved: State, back: State) -> tuple[str, str, str]:
    """`(cause, element, what was seen)` of the first tensor in which `back` is not `saved`, what is no K/V before
    these; the model where every tensor is the same and the continuation is not. Mutates nothing."""
    found = dict(back.tensors())
    for name, was in reversed(list(saved.tensors())):
        now = found.pop(name, None)
        if now is None:
            return *_of(name), f"{name} did not come back"
        if was.shape != now.shape or was.dtype != now.dtype or not _alike(was, now.to(was.device)):
            return _exchanged(saved, back, name) or (*_of(name), _told(name, was, now))
    if found:
        return *_of(next(iter(found))), f"{next(iter(found))} came back and was not saved"
    return "identity", "model_config", "every tensor did, so the model that goes on is another"


def moved(one: State, other: State) -> list[tuple[str, str]]:
    """The layers of `one` that are, bit for bit, another layer of `other`, by both their numbers. Mutates nothing."""
    mine, theirs = _layers(one), _layers(other)
    pairs = []
    for here, tensors in mine.items():
        if not (here in theirs and _same(tensors, theirs[here])):
            there = next((at for at in theirs if _same(tensors, theirs[at])), None)
            pairs += [(here, there)] if there is not None else []
    return pairs


def _exchanged(saved: State, back: State, name: str) -> tuple[str, str, str] | None:
    """That the layer of the tensor `name` came back as another one, where it did."""
    pairs = moved(saved, back) if name.startswith("layer.") else []
    here = name.split(".")[1] if pairs else ""
    there = dict(pairs).get(here)
    if there is None:
        return None
    if dict(pairs).get(there) == here:
        first, last = sorted((here, there), key=int)
        return "block", "kv_cache", f"layers {first} and {last} are exchanged"
    return "block", "kv_cache", f"layer {here} came back as layer {there}"


def _layers(state: State) -> dict[str, dict[str, torch.Tensor]]:
    """The tensors of each layer, by its number and by their names in it."""
    made: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in state.tensors():
        if name.startswith("layer."):
            _, number, rest = name.split(".", 2)
            made.setdefault(number, {})[rest] = tensor
    return made


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two layers hold the same tensors, bit for bit."""
    return one.keys() == other.keys() and all(
        a.shape == (b := other[name]).shape and a.dtype == b.dtype and _alike(a, b.to(a.device))
        for name, a in one.items()
    )


def _of(name: str) -> tuple[str, str]:
    return ELEMENTS.get(name.rpartition(".")[2], ("block", "kv_cache"))


def _alike(was: torch.Tensor, now: torch.Tensor) -> bool:
    """Bit for bit, so NaN is like itself."""
    raw = [t.contiguous().flatten().view(torch.uint8) for t in (was, now)]
    return torch.equal(*raw)


def _told(name: str, was: torch.Tensor, now: torch.Tensor) -> str:
    if was.shape != now.shape or was.dtype != now.dtype:
        return f"{name} is {_form(now)} where {_form(was)} was saved"
    if was.numel() == 1:
        return f"{name} is {now.item():g} where {was.item():g} was saved"
    count = int((was != now.to(was.device)).sum())
    return f"{count} of {was.numel()} values of {name} are others"


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
