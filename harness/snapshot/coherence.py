"""Do the elements of a State agree with each other? Buffer, mask, cursor, cache, prefix and format.

These rules need no digest: they find what was wrong before anything was hashed. A pruned State is
only held to the rules that pruning leaves in force.
"""

from typing import Any

import torch

from harness.snapshot import tokenizer
from harness.snapshot.codes import Codes
from harness.snapshot.digest import digest_tensor
from harness.snapshot.state import LayerState, State

KV_FORMAT = 1
TENSORS = ("token_ids", "attention_mask", "next_position", "logits", "rng")
DOCUMENTS = ("kv_format", "prompt_meta", "generation", "model_config", "tokenizer")
LAYOUT = "[batch, kv_heads, tokens, head_dim]"


def buffer_document(token_ids: Any) -> dict[str, Any]:
    """What element +4 records of the ids `[batch, tokens]` that were sent: their number and digest."""
    return {"tokens": token_ids.shape[1], "digest": digest_tensor(token_ids)}


def faults(state: State) -> list[str]:
    """Every disagreement between two elements, as plain sentences; empty when they agree."""
    return [
        *(_positions(state) + _format(state) + _mask(state) + _cursor(state) + _prompt(state)),
        *tokenizer.faults(state.documents, state.tokenizer_files),
    ]


def shapes(state: State) -> str:
    """In which shapes the parts of a State do not fit each other, the first of them: what nothing can be computed
    from, as `dataclasses.replace` may make it. Empty where they do."""
    if told := _amiss(state):
        return told
    described = state.documents["kv_format"].get("layers")
    if isinstance(described, list) and state.layers and len(described) != len(state.layers):
        return f"it has {len(state.layers)} layers, its kv_format describes {len(described)}"
    if (order := [layer.index for layer in state.layers]) != [*range(len(order))]:
        return f"its layers stand in the order {', '.join(map(str, order))}"
    buffer = (state.batch, state.tokens)
    if state.attention_mask.shape != buffer:
        return f"token_ids are {list(buffer)}, attention_mask {list(state.attention_mask.shape)}"
    rows = {"next_position": len(state.next_position), "logits": len(state.logits)}
    if wrong := [name for name, many in rows.items() if many != state.batch]:
        return f"{wrong[0]} has {rows[wrong[0]]} rows, token_ids {state.batch}"
    return next((told for layer in state.layers if (told := _misshapen(layer, *buffer))), "")


def _amiss(state: State) -> str:
    """What a State has that is no part of one, or lacks."""
    for name in TENSORS:
        if not torch.is_tensor(part := getattr(state, name)):
            return f"its {name} is a {type(part).__name__}, no tensor"
    documents = state.documents
    if lost := [name for name in DOCUMENTS if name not in documents]:
        return f"its documents lack {', '.join(lost)}"
    if not state.layers:
        return "it has no layers"
    return next(iter(forms(state)), "")


def _misshapen(layer: LayerState, batch: int, tokens: int) -> str:
    if layer.segments and layer.seen != tokens:
        return f"layer {layer.index} has read {layer.seen} tokens, token_ids {tokens}"
    for segment in layer.segments:
        if strange := [
            k for k in (segment.key, segment.value) if not isinstance(k, torch.Tensor | Codes)
        ]:
            return f"layer {layer.index} has a {type(strange[0]).__name__} where a tensor belongs"
        key, value = (list(kept.shape) for kept in (segment.key, segment.value))
        if len(key) != 4 or key[:3] != value[:3] or key[0] != batch:
            return (
                f"layer {layer.index} has keys {key}, values {value} and {batch} rows of token_ids"
            )
        if segment.positions.shape[-1] != key[2]:
            return f"layer {layer.index} has keys of {key[2]} tokens, positions of {segment.positions.shape[-1]}"
    return ""


def forms(state: State) -> list[str]:
    """Tensors beside the layers that have another dtype or rank than their readers expect, and a
    generator state that no generator takes."""
    forms = {"token_ids": (2, "int64"), "attention_mask": (2, "int64"), "next_position": (1, "int64"),
             "logits": (2, None), "rng": (1, "uint8")}  # fmt: skip
    problems = []
    for name, (rank, dtype) in forms.items():
        tensor = getattr(state, name)
        actual = str(tensor.dtype).removeprefix("torch.")
        if tensor.ndim != rank or (dtype and actual != dtype):
            problems.append(
                f"{name} is {actual} of rank {tensor.ndim}, not {dtype or 'float'} of {rank}"
            )
    return problems or _generator(state.rng)


def _generator(rng: torch.Tensor) -> list[str]:
    try:
        torch.Generator().set_state(rng.cpu())
    except (RuntimeError, TypeError) as problem:
        return [f"the generator state cannot be used: {str(problem).splitlines()[0][:120]}"]
    return []


def _format(state: State) -> list[str]:
    problems, declared = [], state.documents["kv_format"]
    if declared.get("version") != KV_FORMAT:
        problems.append(f"K/V format {declared.get('version')!r} is not the {KV_FORMAT} this reads")
    if declared.get("layout") != LAYOUT:
        problems.append(f"K/V layout {declared.get('layout')!r} is not {LAYOUT}")
    stored = {str(s.key.dtype) for layer in state.layers for s in layer.segments}
    claimed = f"torch.{declared.get('dtype')}"
    if stored and stored != {claimed}:
        problems.append(f"K/V is {', '.join(sorted(stored))}, the format document says {claimed}")
    if state.quantized and not declared.get("quantized"):
        problems.append(
            "layers hold codes in place of keys and values, and no quantizing is recorded"
        )
    return problems


def _mask(state: State) -> list[str]:
    mask = state.attention_mask
    if mask.shape[1] > 1 and bool((mask.diff(dim=1) < 0).any()):
        return ["the attention mask hides a token that is not left padding"]
    return []


def _cursor(state: State) -> list[str]:
    """The cursor is the number of real tokens; cache and buffer end at it. Pruning drops what layers
    hold, and moves the cursor only where positions were given anew."""
    pruned = state.documents["kv_format"].get("pruned")
    entries = pruned if isinstance(pruned, list) else []
    if any(not isinstance(e, dict) or e.get("positions") != "original" for e in entries):
        return []
    if state.pruned and not pruned:
        return ["layers hold fewer tokens than they saw, and no pruning is recorded"]
    if state.token_ids.shape != state.attention_mask.shape:
        return []
    problems, tokens = [], state.attention_mask.sum(dim=1)
    if bool((state.next_position != tokens).any()):
        problems.append(
            f"next_position is {state.next_position.tolist()}, the buffer holds {tokens.tolist()} "
            "tokens that are not padding"
        )
    for layer in state.layers:
        if not layer.segments:
            continue
        if layer.seen != state.tokens:
            problems.append(
                f"layer {layer.index}: saw {layer.seen} tokens, the buffer holds {state.tokens}"
            )
        if pruned:
            continue
        newest = layer.positions[..., -1].reshape(state.batch, -1)
        if bool((newest != state.next_position[:, None] - 1).any()):
            problems.append(f"layer {layer.index}: the last position is not next_position - 1")
        if layer.kept == layer.seen and bool((layer.positions.diff(dim=-1) != 1).any()):
            problems.append(
                f"layer {layer.index}: positions leave gaps although nothing was pruned"
            )
    return problems


def _prompt(state: State) -> list[str]:
    meta = state.documents.get("prompt_meta", {})
    problems, prefix, buffer = [], meta.get("prefix_ids") or [], meta.get("buffer")
    row = state.token_ids[0]
    if state.attention_mask.shape == state.token_ids.shape:
        row = row[state.attention_mask[0] != 0]
    if row[: len(prefix)].tolist() != list(prefix):
        problems.append(
            "the token buffer does not begin with the recorded prefix (system prompt, BOS)"
        )
    if buffer:
        head = state.token_ids[:, : buffer["tokens"]].contiguous()
        if head.shape[1] != buffer["tokens"] or digest_tensor(head) != buffer["digest"]:
            problems.append("the token buffer does not begin with the ids that were sent")
    return problems


def _positions(state: State) -> list[str]:
    """Positions strictly increase within each layer and stay below `next_position`."""
    problems = []
    for layer in state.layers:
        if not layer.segments:
            continue
        positions = layer.positions
        if positions.shape[-1] > 1 and bool((positions.diff(dim=-1) <= 0).any()):
            problems.append(f"layer {layer.index}: positions are not strictly increasing")
        newest = positions[..., -1].reshape(len(positions), -1) if positions.numel() else None
        if newest is not None and bool((newest >= state.next_position[:, None]).any()):
            problems.append(f"layer {layer.index}: a position is not below next_position")
        if layer.kept > layer.seen:
            problems.append(f"layer {layer.index}: keeps {layer.kept} tokens but saw {layer.seen}")
    if state.token_ids.shape != state.attention_mask.shape:
        problems.append("attention mask and token buffer have different shapes")
    return problems
