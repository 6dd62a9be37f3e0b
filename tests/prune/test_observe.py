"""Observed attention against full attention matrices, and that observing changes nothing."""

import pytest
import torch

from harness.capture import new_cache, positions_of, prefill
from harness.capture.observe import EXPECTED, observe_again, observing, received
from harness.errors import UnsupportedModel
from harness.pipeline.prune import moves

from .conftest import build, ids_of, take

EPS = torch.finfo(torch.float32).eps  # scores are kept in float32


def matrices(loaded, ids, mask):
    """Full attention matrices `[batch, heads, tokens, tokens]` per layer, from the eager path: each row
    alone and unpadded, zeros where its padding stands."""
    loaded.model.set_attn_implementation("eager")
    rows = []
    for row, real in zip(ids, mask.bool(), strict=True):
        with torch.no_grad():
            out = loaded.model(input_ids=row[real][None], output_attentions=True)
        front = int((~real).sum())
        rows.append([torch.nn.functional.pad(a, (front, 0, front, 0)) for a in out.attentions])
    loaded.model.set_attn_implementation("sdpa")
    return [torch.cat(layer) for layer in zip(*rows, strict=True)]


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "gpt2"])
@pytest.mark.parametrize("chunk", [None, 7])
def test_sums_match_the_full_matrices(architecture, chunk, monkeypatch):
    monkeypatch.setattr("harness.capture.observe.QUERY_CHUNK", 5)
    extra = {"sliding_window": 12, "layers": 6} if architecture == "gemma3_text" else {}
    loaded = build(architecture, **extra, dtype=torch.float64)
    rows = [ids_of(23, 1), ids_of(17, 2)]
    for queries in (0, 4):
        with observing(loaded, queries) as seen:
            state = received(take(loaded, rows, chunk=chunk).state, seen)
        full = matrices(loaded, state.token_ids, state.attention_mask)
        real = state.attention_mask.bool()
        for layer, matrix in zip(state.layers, full, strict=True):
            heads = layer.segments[0].key.shape[1]
            weights = matrix.unflatten(1, (heads, -1)).sum(2)
            expected = weights[:, :, -4:] if queries else weights.sum(2, keepdim=True)
            expected = expected[..., -layer.kept :]
            keys = real[:, None, None, -layer.kept :]
            gap = ((layer.received - expected) * keys).abs().max()
            assert gap <= 4 * EPS * expected.max(), layer.index


def test_observing_changes_no_bit_and_is_undone():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = dict(ALL_ATTENTION_FUNCTIONS._global_mapping)
    loaded = build()
    plain = take(loaded, [ids_of(30)]).state
    with observing(loaded, 0) as seen:
        watched = take(loaded, [ids_of(30)]).state
    assert torch.equal(plain.logits, watched.logits) and seen.layers
    assert before == ALL_ATTENTION_FUNCTIONS._global_mapping
    with pytest.raises(RuntimeError), observing(loaded, 0):
        raise RuntimeError
    assert before == ALL_ATTENTION_FUNCTIONS._global_mapping
    with observing(loaded, None) as nothing:
        take(loaded, [ids_of(5)])
    assert not nothing.layers


def test_eager_attention_is_observed_too():
    loaded = build(seed=3, dtype=torch.float64)
    with observing(loaded, 0) as one:
        take(loaded, [ids_of(20)])
    loaded.model.set_attn_implementation("eager")
    with observing(loaded, 0) as two:
        take(loaded, [ids_of(20)])
    for index, scores in one.layers.items():
        assert (scores - two.layers[index]).abs().max() <= 2 * EPS * scores.max()


def test_scores_of_a_stored_state_are_found_again():
    from harness.prune.positions import reindexed
    from harness.prune.registry import policy

    from .conftest import settings

    loaded = build()
    with observing(loaded, 0) as seen:
        state = received(take(loaded, [ids_of(30, 1), ids_of(22, 2)]).state, seen)
    again = observe_again(loaded, state, 0)
    for a, b in zip(state.layers, again.layers, strict=True):
        assert torch.equal(a.received, b.received)
    small = policy(settings("knorm", tokens=9)).prune(state)
    again = observe_again(loaded, small, 0)
    for a, b in zip(small.layers, again.layers, strict=True):
        assert torch.equal(a.received, b.received)
    moved = reindexed(small, moves(loaded, state))
    with pytest.raises(UnsupportedModel, match="reindexed"):
        observe_again(loaded, moved, 0)


def test_no_full_matrix_is_kept():
    """Peak extra memory of observing is a few query chunks, far from tokens squared."""

    loaded = build()
    ids = torch.tensor([ids_of(500)])
    mask = torch.ones_like(ids)
    largest = 0
    real = torch.Tensor.softmax

    def watch(self, *args, **kwargs):
        nonlocal largest
        largest = max(largest, self.numel())
        return real(self, *args, **kwargs)

    torch.Tensor.softmax = watch
    try:
        with observing(loaded, 0):
            prefill(loaded, ids, mask, positions_of(mask), new_cache(loaded))
    finally:
        torch.Tensor.softmax = real
    assert 0 < largest <= 4 * 128 * 500


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "gpt2", "cohere"])
def test_what_keys_can_expect_depends_on_no_chunk_and_no_padding(architecture):
    """Sliding layers, two RoPE bases, interleaved and learned positions."""
    extra = {"sliding_window": 12, "layers": 6} if architecture == "gemma3_text" else {}
    loaded = build(architecture, **extra)
    ids = ids_of(31, 4)
    with observing(loaded, EXPECTED) as seen:
        whole = received(take(loaded, [ids]).state, seen)
    with observing(loaded, EXPECTED) as seen:
        parts = received(take(loaded, [ids], chunk=7).state, seen)
    again = observe_again(loaded, take(loaded, [ids]).state, EXPECTED)
    for one, two, three in zip(whole.layers, parts.layers, again.layers, strict=True):
        assert one.received.shape == (1, one.key.shape[1], 1, one.kept)
        assert torch.allclose(one.received, two.received, rtol=4 * EPS, atol=0) or one.window
        assert torch.equal(one.received, three.received)
        if not one.window:
            assert torch.allclose(one.received.sum(-1), torch.ones(()), rtol=4 * EPS, atol=0)
            assert not one.received[..., :4].any()  # the front is not rated
    with observing(loaded, EXPECTED) as seen:
        padded = received(take(loaded, [ids_of(40, 5), ids]).state, seen)
    for one, two in zip(whole.layers, padded.layers, strict=True):
        if not one.window:
            alone, beside = one.received[0], two.received[1, ..., 9:]
            assert torch.allclose(alone, beside, rtol=4 * EPS, atol=0)


def test_what_is_expected_is_what_later_queries_give():
    """Against the attention that many later queries of the same kind really gave: of two keys, the
    one rated higher receives more, far oftener than not. The twin, keys in another order, does not."""
    loaded = build(seed=2)
    ids = ids_of(120, 6)
    with observing(loaded, EXPECTED) as seen:
        state = received(take(loaded, [ids[:60]]).state, seen)
    with observing(loaded, 60) as later:
        take(loaded, [ids])
    agreed, twin = [], []
    for layer in state.layers:
        real = later.layers[layer.index].sum(2)[0, :, 4:60].double()
        rated = layer.received[0, :, 0, 4:].double()
        for rows, found in ((rated, agreed), (rated.flip(1), twin)):
            a = (rows[..., None] > rows[:, None]) == (real[..., None] > real[:, None])
            found.append(float(a.double().mean()))
    assert min(agreed) > max(twin) and sum(agreed) > sum(twin) + 0.1, (agreed, twin)
