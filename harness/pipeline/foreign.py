"""A State out of keys and values that another program saved: only where they are those of the tokens."""

from collections.abc import Sequence
from typing import Any

import torch

from harness.capture import check_length, check_vocabulary, new_cache, positions_of
from harness.compare.identity import Difference
from harness.engine.saved import Saved, halves
from harness.errors import InputProblem, RestoreRefused
from harness.model.loaded import Loaded
from harness.pipeline.interop import from_cache
from harness.pipeline.restore import MARGIN
from harness.pipeline.session import Session
from harness.snapshot.state import State

CHUNK = 16  # tokens of a prefill whose cache is rounded as the file rounds
TURNED = "RoPE of neighbours"

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def pairs(there: Saved, where: str) -> Pairs:
    """Keys and values per layer. Raises InputProblem for a cache that does not hold every token."""
    try:
        return there.keys_and_values()
    except (ValueError, KeyError, TypeError, RuntimeError, OSError) as problem:
        raise InputProblem(f"{where}, {there.kind}: {str(problem).splitlines()[0][:200]}") from None


def kinds(there: Saved) -> str:
    """What the numbers are kept as, in the library's words."""
    names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
    names |= {name.upper(): dtype for name, dtype in names.items()}
    return ", ".join(sorted({names.get(row["dtype"], str(row["dtype"])) for row in there.layers}))


def fitted(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`tensor` with the KV heads of `like` `[batch, kv_heads, tokens, head_dim]`, where it has all of them
    as one; else as it is."""
    heads, size = like.shape[1], like.shape[3]
    if tensor.shape[:2] != (1, 1) or heads == 1 or tensor.shape[3] != heads * size:
        return tensor
    return tensor.reshape(1, tensor.shape[2], heads, size).transpose(1, 2)


def orders(keys: torch.Tensor) -> dict[str, torch.Tensor]:
    """The ways in which RoPE may have turned pairs of `keys`, each in the library's order."""
    return {"": keys, TURNED: halves(keys)} if keys.shape[-1] % 2 == 0 else {"": keys}


def adopted(
    session: Session, there: Saved, ids: Sequence[int], where: str
) -> tuple[State, dict[str, Any]]:
    """The State of `ids` with the keys and values of `there`, and what was measured on the way.

    The model reads the ids itself, and every key and value has to be where that puts it: within
    `MARGIN` times what another chunking and the file's own rounding do to this very model. Raises
    InputProblem for a file that cannot be one, RestoreRefused for one that is of other tokens or of
    another model; `restore.strict=false` takes it anyway; what was waived is in the second value.
    """
    loaded = session.loaded
    row = torch.tensor([list(ids)], device=loaded.device)
    check_length(loaded, row.shape[1], 1)
    check_vocabulary(loaded, row)
    if coded := {k for x in there.layers for k in str(x["dtype"]).split(", ") if k.startswith("q")}:
        raise InputProblem(
            f"{where} keeps {', '.join(sorted(coded))}: only f32, f16 and bf16 become a snapshot."
        )
    mine = _prefilled(loaded, row)
    layers = [(fitted(k, a), fitted(v, b)) for (k, v), (a, b) in zip(pairs(there, where), mine)]
    wrong = _forms(layers, mine, len(there.layers))
    if wrong:
        raise RestoreRefused(where, wrong)
    order, layers = _turned(layers, mine)
    stored = max((t.dtype for pair in layers for t in pair), key=lambda d: torch.finfo(d).eps)
    floors = _floors(loaded, row, mine, stored)
    rows = [_measured(i, *pair) for i, pair in enumerate(zip(layers, mine, floors))]
    wrong = [_difference(r) for r in rows if not r["off_by"] <= MARGIN * r["floor"]]
    if wrong and session.cfg.restore.strict:
        raise RestoreRefused(where, wrong)
    cache = new_cache(loaded)
    for index, (key, value) in enumerate(layers):
        cache.update(key.to(row.device, loaded.dtype), value.to(row.device, loaded.dtype), index)
    state = from_cache(session, cache, row)
    said = {"kind": there.kind, "kept_as": kinds(there), "keys": order or "the library's order"}
    return state, {**said, "layers": rows, "waived": wrong}


def _prefilled(
    loaded: Loaded, row: torch.Tensor, chunk: int | None = None, stored: Any = None
) -> Pairs:
    """Keys and values of `row`; with `stored`, rounded to that dtype after every chunk."""
    cache, positions = new_cache(loaded), positions_of(torch.ones_like(row))
    size = chunk or row.shape[1]
    for start in range(0, row.shape[1], size):
        part = slice(start, start + size)
        loaded.forward(row[:, part], positions[:, part], None, cache, keep=1)
        for layer in cache.layers if stored is not None else ():
            layer.keys = layer.keys.to(stored).to(loaded.dtype)
            layer.values = layer.values.to(stored).to(loaded.dtype)
    return [(layer.keys, layer.values) for layer in cache.layers]


def _floors(loaded: Loaded, row: torch.Tensor, mine: Pairs, stored: torch.dtype) -> list[float]:
    """Per layer, what other chunks and the rounding to `stored` do; never below one rounding of it."""
    others = [
        _prefilled(loaded, row, CHUNK, stored),
        _prefilled(loaded, row, max(row.shape[1] // 4, 1)),
    ]
    out = []
    for index, pair in enumerate(mine):
        eps = max(torch.finfo(stored).eps, torch.finfo(loaded.dtype).eps)
        least = eps * max(float(t.abs().max()) for t in pair)
        gaps = [_gap(x, y) for other in others for x, y in zip(other[index], pair)]
        out.append(max(least, *gaps))
    return out


def _forms(layers: Pairs, mine: Pairs, count: int) -> list[Difference]:
    """Differences of number and shape, before any number is looked at."""
    if count != len(mine):
        return [Difference("1 kv_cache", "layers", count, len(mine))]
    return [
        Difference("1 kv_cache", f"layer {i} shape", list(x.shape), list(y.shape))
        for i, (a, b) in enumerate(zip(layers, mine))
        for x, y in zip(a, b)
        if x.shape != y.shape
    ]


def _turned(layers: Pairs, mine: Pairs) -> tuple[str, Pairs]:
    """The order of RoPE whose keys lie nearer to the model's own, and the layers in it."""

    def distance(name: str) -> float:
        return max(_gap(orders(k)[name], a) for (k, _), (a, _) in zip(layers, mine))

    best = min(orders(layers[0][0]), key=distance)
    return best, [(orders(k)[best], v) for k, v in layers]


def _measured(index: int, pair: Any, mine: Any, floor: float) -> dict[str, Any]:
    """How far one layer is off, and the first token that is further than it may be."""
    differences = [(x.double() - y.double()).abs() for x, y in zip(pair, mine)]
    gaps = torch.stack([d.amax((0, 1, 3)) for d in differences]).amax(0)
    beyond = (~(gaps <= MARGIN * floor)).nonzero()
    first = int(beyond[0, 0]) if len(beyond) else None
    return {"layer": index, "off_by": float(gaps.max()), "floor": floor, "first_token": first}


def _difference(row: dict[str, Any]) -> Difference:
    what = f"layer {row['layer']}, token {row['first_token']}: read by this model"
    saved, expected = f"off by {row['off_by']:.3g}", f"within {MARGIN * row['floor']:.3g}"
    return Difference("1 kv_cache", what, saved, expected)


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())
