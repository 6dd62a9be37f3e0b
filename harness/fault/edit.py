"""Small tools that faults share: change a State, a weight, a tokenizer's rules, a stored file."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness.snapshot import manifest as manifests
from harness.snapshot.codes import Codes, dense
from harness.snapshot.state import LayerState, Segment, State

Change = Callable[[torch.Tensor], torch.Tensor]


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def layers(
    state: State, key: Change = same, value: Change = same, only: int | None = None
) -> State:
    """A State with `key` and `value` applied to every segment's `[batch, heads, tokens, dim]`."""

    def one(layer: LayerState) -> LayerState:
        if only is not None and layer.index != only:
            return layer
        pairs = [(s, key(dense(s.key)), value(dense(s.value))) for s in layer.segments]
        return replace(layer, segments=tuple(replace(s, key=k, value=v) for s, k, v in pairs))

    return replace(state, layers=tuple(one(layer) for layer in state.layers))


def select(state: State, index: torch.Tensor, positions: Change = same) -> State:
    """A State whose K/V holds only the tokens at `index` (1-d), its format document kept in step."""

    def one(layer: LayerState) -> LayerState:
        if not layer.segments:
            return layer
        gone = state.kept_tokens - layer.kept  # a sliding layer holds only the last ones
        at = (index[index >= gone] - gone).to(layer.key.device)
        segment = Segment(
            key=layer.key[:, :, at].contiguous(),
            value=layer.value[:, :, at].contiguous(),
            positions=positions(layer.positions[..., at]).contiguous(),
        )
        return replace(layer, segments=(segment,))

    return described(replace(state, layers=tuple(one(layer) for layer in state.layers)))


def scales(state: State, change: Change) -> State:
    """A State with `change` of every scale of its codes; plain segments stay."""

    def one(segment: Segment) -> Segment:
        if not (isinstance(segment.key, Codes) and isinstance(segment.value, Codes)):
            return segment
        key, value = (replace(c, scale=change(c.scale)) for c in (segment.key, segment.value))
        return replace(segment, key=key, value=value)

    layers = (replace(la, segments=tuple(map(one, la.segments))) for la in state.layers)
    return replace(state, layers=tuple(layers))


def described(state: State) -> State:
    """The State with its format document rewritten to fit its layers, as an unwitting script would."""
    return state.with_layers(state.layers)


def block(state: State) -> int:
    """Tokens of a block such as servers keep: a third of what the shortest layer holds, at most 16."""
    shortest = min(layer.kept for layer in state.layers if layer.segments)
    return max(min(shortest // 3, 16), 1)


def mixed(
    state: State, other: State, choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> State:
    """A State whose K/V is `choose` of its own and of `other`'s, segment by segment."""

    def one(a: Segment, b: Segment) -> Segment:
        key, value = choose(dense(a.key), dense(b.key)), choose(dense(a.value), dense(b.value))
        return replace(a, key=key, value=value)

    pairs = zip(state.layers, other.layers, strict=True)
    layers = (replace(a, segments=tuple(map(one, a.segments, b.segments))) for a, b in pairs)
    return replace(state, layers=tuple(layers))


def recurrent(state: State, change: Callable[[str, torch.Tensor], torch.Tensor]) -> State:
    """A State with `change(name, tensor)` in place of every recurrent tensor."""

    def one(layer: LayerState) -> LayerState:
        tensors = {name: change(name, tensor) for name, tensor in layer.recurrent.items()}
        return replace(layer, recurrent=MappingProxyType(tensors))

    return replace(state, layers=tuple(map(one, state.layers)))


def recurrent_from(state: State, other: State) -> State:
    """A State with the recurrent tensors of `other`; everything else stays."""
    pairs = zip(state.layers, other.layers, strict=True)
    return replace(state, layers=tuple(replace(a, recurrent=b.recurrent) for a, b in pairs))


def adapter(model: Any, name: str, seed: int) -> None:
    """Put a rank-two adapter beside the first linear layer called `name` (its weight untouched)."""
    path, linear = next((n, m) for n, m in model.named_modules() if n.endswith(name))
    parent, _, last = path.rpartition(".")
    setattr(model.get_submodule(parent), last, _Adapted(linear, seed))


class _Adapted(torch.nn.Module):
    """`linear(x) + up(down(x))`, both of rank two, as adapters are served beside shared weights."""

    def __init__(self, linear: Any, seed: int):
        super().__init__()
        weight = linear.weight  # GPT-2 keeps it transposed, which a rank-two product does not mind
        wide = weight.shape if hasattr(linear, "nf") else weight.shape[::-1]
        self.linear = linear
        self.down = torch.nn.Parameter(weight.new_empty(wide[0], 2))
        self.down.data.normal_(generator=torch.Generator().manual_seed(seed))
        self.up = torch.nn.Parameter(weight.new_empty(2, wide[1]))
        self.up.data.normal_(generator=torch.Generator().manual_seed(seed + 1)).mul_(
            weight.std() * 0.5
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + x @ self.down @ self.up


def buffer(state: State, index: torch.Tensor) -> State:
    """A State whose token buffer and mask hold the columns `index` (1-d) only, in that order."""
    at = index.to(state.token_ids.device)
    return replace(
        state,
        token_ids=state.token_ids[:, at].contiguous(),
        attention_mask=state.attention_mask[:, at].contiguous(),
    )


def weight(model: Any, ending: str, change: Change, every: bool = False) -> None:
    """Replace the first (or every) parameter whose name contains `ending` by `change` of it."""
    parameters = [p for n, p in model.named_parameters() if ending in n]
    for parameter in parameters if every else parameters[:1]:
        with torch.no_grad():
            parameter.copy_(change(parameter.detach().clone()))


def frequencies(model: Any, change: Change) -> None:
    """Replace every inverse frequency of RoPE, or the table of learned positions, by `change` of it."""
    for name, tensor in [*model.named_buffers(), *model.named_parameters()]:
        rotary = name.endswith("inv_freq") and "original" not in name
        if rotary or name.endswith(("wpe.weight", "embed_positions.weight")):
            tensor.data.copy_(change(tensor.data.clone()))


def projections(model: Any, which: str) -> str:
    """The name under which this family keeps its Q, K, V or O projection (GPT-2 joins the first)."""
    names = [n for n, _ in model.named_parameters()]
    joined = {"q": "attn.c_attn.", "k": "attn.c_attn.", "v": "attn.c_attn.", "o": "attn.c_proj."}
    return f".{which}_proj." if any(f".{which}_proj." in n for n in names) else joined[which]


def narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` through a narrower type and back: bfloat16, or 8 bits where it has 16 already."""
    narrow = torch.bfloat16 if tensor.element_size() > 2 else torch.float8_e4m3fn
    return tensor.to(narrow).to(tensor.dtype)


def noise_like(tensor: torch.Tensor, size: float, seed: int = 0) -> torch.Tensor:
    """Gaussian noise of `size` standard deviations of `tensor`."""
    noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))
    return noise.to(tensor) * tensor.float().std().to(tensor.dtype) * size


def rules(tokenizer: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Let `change` edit the JSON of a fast tokenizer's rules in place, and load it again."""
    backend = tokenizer.backend_tokenizer
    document = json.loads(backend.to_str())
    change(document)
    tokenizer._tokenizer = type(backend).from_str(json.dumps(document))


def manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Let `change` edit the manifest in place, and hash it anew, so that no digest gives it away."""
    path = folder / manifests.NAME
    document = json.loads(path.read_bytes())
    change(document)
    document["id"] = manifests.identity(document)
    path.write_bytes(manifests.dump(document))


def stored(folder: Path, name: str) -> tuple[Path, int, int]:
    """`(file, offset, nbytes)` of the stored tensor `name`; other formats than safetensors: the
    middle of its file."""
    document = json.loads((folder / manifests.NAME).read_bytes())
    row = _row(document, name)
    path = folder / row["file"]
    if path.suffix != ".safetensors":
        return path, path.stat().st_size // 2, min(row["nbytes"], path.stat().st_size // 4)
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        start, end = json.loads(file.read(length))[manifests.stored_name(row["name"])][
            "data_offsets"
        ]
    return path, 8 + length + start, end - start


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Write `data` into the middle of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def width(folder: Path, name: str) -> int:
    """Bytes of one value of the stored tensor `name`, at least 2."""
    document = json.loads((folder / manifests.NAME).read_bytes())
    return {"float64": 8, "float32": 4}.get(_row(document, name)["dtype"], 2)


def _row(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """The row of the tensor `name`, or of its codes where it is kept as such."""
    return next(r for r in manifest["tensors"] if r["name"] in (name, f"{name}_codes"))


def has(model: Any, part: str) -> bool:
    """Whether any parameter's name contains `part`."""
    return any(part in name for name, _ in model.named_parameters())
