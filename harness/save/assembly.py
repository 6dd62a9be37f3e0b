"""A State out of the tensors that a snapshot's manifest names."""

from types import MappingProxyType
from typing import Any

import torch

from harness.save import lineage
from harness.snapshot.codes import PARTS, Codes, coded_as
from harness.snapshot.state import LayerState, Segment, State


def assemble(
    manifest: dict[str, Any], tensors: dict[str, torch.Tensor], tokenizer: dict[str, bytes]
) -> State:
    """The State of verified `tensors` and `tokenizer` files; its parent is this snapshot."""
    origin = manifest["id"]
    layers = tuple(
        _layer(entry, tensors, origin) for entry in manifest["documents"]["kv_format"]["layers"]
    )
    return State(
        layers=layers,
        token_ids=tensors["token_ids"],
        attention_mask=tensors["attention_mask"],
        next_position=tensors["next_position"],
        logits=tensors["logits"],
        rng=tensors["rng"],
        documents=MappingProxyType(manifest["documents"]),
        tokenizer_files=MappingProxyType(tokenizer),
        parent=origin,
    )


def _layer(entry: dict[str, Any], tensors: dict[str, torch.Tensor], origin: str) -> LayerState:
    stem = f"layer.{entry['index']}"
    segments = tuple(segment_read(entry, i, tensors, origin) for i in range(len(entry["segments"])))
    recurrent = {part: tensors[f"{stem}.{part}"] for part in entry["recurrent"]}
    received = tensors.get(f"{stem}.received")
    index, kind, seen, window = (entry[key] for key in ("index", "kind", "seen", "window"))
    state = MappingProxyType(recurrent)
    return LayerState(index, kind, segments, seen, window, state, received)


def segment_read(
    entry: dict[str, Any],
    number: int,
    tensors: dict[str, torch.Tensor],
    origin: str | None = None,
) -> Segment:
    """Segment `number` of the layer that `entry` describes, from `tensors` by name."""
    place, coded = f"layer.{entry['index']}.segment.{number}", coded_as(entry, number)
    if coded is None:
        stored = [tensors[f"{place}.{part}"] for part in lineage.PARTS]
        return Segment(stored[0], stored[1], stored[2], origin)
    key, value = (
        Codes.of(
            coded[part],
            {p: t for p in PARTS if (t := tensors.get(f"{place}.{part}_{p}")) is not None},
        )
        for part in ("key", "value")
    )
    return Segment(key, value, tensors[f"{place}.positions"], origin)
