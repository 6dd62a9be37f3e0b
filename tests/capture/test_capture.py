"""What a prefill leaves: positions of padded rows, chunks, layer kinds, and what is refused."""

from types import SimpleNamespace

import pytest
import torch

from harness.capture import (
    capture,
    check_length,
    check_vocabulary,
    new_cache,
    pad_left,
    positions_of,
    prefill,
)
from harness.capture.layers import layers_of
from harness.compare.soundness import rounded_path
from harness.errors import InputProblem, UnsupportedModel
from harness.model.loaded import Loaded

TEXT = "text='let k be 5 . the bird sang in the tree . what is k ?'"


def _rounding(loaded: Loaded, ids: torch.Tensor, logits: torch.Tensor) -> bool:
    """Whether `logits` `[1, vocab]` after `ids` differ from float64 by no more than rounding does to
    the model without a cache, by the yardstick's own rule."""
    exact, plain = loaded.oracle.uncached(ids, 1), loaded.uncached(ids, 1)
    error = float((plain.double() - exact).abs().max())
    return rounded_path("prefill", logits[:, None], error, exact, loaded.dtype).sound


def test_rows_are_padded_on_the_left_and_positions_strictly_increase() -> None:
    ids, mask = pad_left([[5, 6, 7], [8]], pad=0)
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    positions = positions_of(mask)
    assert positions.tolist() == [[0, 1, 2], [-2, -1, 0]]
    assert bool((positions.diff(dim=1) > 0).all())


def test_a_row_says_the_same_alone_and_beside_a_longer_one(captured) -> None:
    session, both = captured(TEXT, "prompt.batch=2")
    loaded, mask = session.loaded, both.state.attention_mask
    short = both.state.token_ids[1:, int((mask[1] == 0).sum()) :]
    alone = capture(loaded, short, torch.ones_like(short), {}).state
    assert alone.next_position.tolist() == both.state.next_position[1:].tolist()
    assert _rounding(loaded, short, both.state.logits[1:])
    shifted = positions_of(mask) + (mask == 0).sum(1, keepdim=True)  # the twin: padding is counted
    wrong = loaded.forward(both.state.token_ids, shifted, torch.ones_like(mask), keep=1)[1:, -1]
    assert not _rounding(loaded, short, wrong)


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_chunks_fill_the_same_cache(captured, chunk: int) -> None:
    session, made = captured(TEXT)
    ids, mask = made.state.token_ids, made.state.attention_mask
    cache = new_cache(session.loaded)
    logits = prefill(session.loaded, ids, mask, positions_of(mask), cache, chunk)[:, -1]
    assert _rounding(session.loaded, ids, logits)
    assert cache.get_seq_length() == made.state.tokens


def test_nothing_that_was_passed_in_is_written_to(captured) -> None:
    session, made = captured(TEXT)
    ids = made.state.token_ids.clone()
    mask, documents = torch.ones_like(ids), {"generation": {"steps": 0}}
    capture(session.loaded, ids, mask, documents)
    assert torch.equal(ids, made.state.token_ids) and bool(mask.all())
    assert documents == {"generation": {"steps": 0}}


def test_the_live_cache_grows_and_the_state_does_not(captured) -> None:
    session, made = captured(TEXT)
    key = made.state.layers[0].key.clone()
    position = made.state.next_position[:, None]
    session.loaded.forward(made.state.token_ids[:, :1], position, None, made.live)
    assert made.live.get_seq_length() == made.state.tokens + 1
    assert torch.equal(made.state.layers[0].key, key)


def test_what_does_not_fit_the_model_is_one_plain_message(captured) -> None:
    session, made = captured(TEXT)
    with pytest.raises(InputProblem, match="positions"):
        check_length(session.loaded, made.state.tokens, 10**6)
    with pytest.raises(InputProblem, match=r"knows .*\(model\.tokenizer=DIR\)\.$"):
        check_vocabulary(session.loaded, torch.tensor([[10**6]]))


def test_of_a_declared_shape_the_vocabulary_can_be_declared_larger_and_layers_are_needed(
    session,
) -> None:
    small = ("hidden_size:32", "num_attention_heads:2", "num_hidden_layers:0", "vocab_size:9")
    asked = ("model=shape", "model.architecture=llama", f"+model.config={{{','.join(small)}}}")
    loaded, ids = session(*asked).loaded, torch.tensor([[8, 9]])
    with pytest.raises(InputProblem, match=r"knows 9 .*, or a larger model\.config\.vocab_size\.$"):
        check_vocabulary(loaded, ids)
    with pytest.raises(UnsupportedModel, match=r"no layer \(num_hidden_layers: 0\)"):
        capture(loaded, ids, torch.ones_like(ids), {})


def test_a_layer_of_unknown_kind_is_refused() -> None:
    cache = SimpleNamespace(layers=[SimpleNamespace(keys=None)])
    with pytest.raises(UnsupportedModel, match="SimpleNamespace"):
        layers_of(cache, torch.arange(3)[None])
