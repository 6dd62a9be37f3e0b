"""State: immutable, counts what is kept, moves and commits without touching the old tensors."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from harness.snapshot.state import LayerState, Segment


def segment(tokens: int, start: int = 0) -> Segment:
    positions = torch.arange(start, start + tokens)[None]
    return Segment(torch.randn(1, 2, tokens, 4), torch.randn(1, 2, tokens, 4), positions)


def test_nothing_can_be_assigned(captured) -> None:
    _, one = captured()
    for target, name in (
        (one.state, "logits"),
        (one.state.layers[0], "seen"),
        (one.state.layers[0].segments[0], "key"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(target, name, None)
    with pytest.raises(TypeError):
        one.state.documents["tokenizer"] = {}


def test_one_segment_is_not_copied() -> None:
    held = segment(5)
    layer = LayerState(0, "full_attention", (held,), 5)
    assert layer.key.data_ptr() == held.key.data_ptr()
    assert layer.kept == 5


def test_segments_join_in_order() -> None:
    first, second = segment(3), segment(2, 3)
    layer = LayerState(0, "full_attention", (first, second), 5)
    assert torch.equal(layer.key, torch.cat([first.key, second.key], 2))
    assert layer.positions.tolist() == [[0, 1, 2, 3, 4]]
    assert layer.nbytes == first.nbytes + second.nbytes


def test_pruned_knows_a_window_from_a_loss(captured) -> None:
    _, one = captured("model=tiny_gemma3")
    state = one.state
    sliding = [layer for layer in state.layers if layer.window]
    assert sliding and all(layer.kept == layer.window - 1 < layer.seen for layer in sliding)
    assert not state.pruned
    first = state.layers[-1].segments[0]
    shorter = Segment(first.key[:, :, 1:], first.value[:, :, 1:], first.positions[:, 1:])
    layers = (*state.layers[:-1], replace(state.layers[-1], segments=(shorter,)))
    assert replace(state, layers=layers).pruned


def test_moving_to_the_same_device_copies_nothing(captured) -> None:
    _, one = captured()
    assert one.state.to(torch.device("cpu")) is one.state


def test_a_document_changes_in_a_new_state_only(captured) -> None:
    _, one = captured()
    changed = one.state.document("tokenizer", size=1)
    assert changed.documents["tokenizer"]["size"] == 1
    assert one.state.documents["tokenizer"]["size"] != 1
