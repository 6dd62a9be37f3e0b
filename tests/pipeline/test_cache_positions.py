"""A padded batch counted through its padding, and the ordinary mistakes with a cache of one's own."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
)

import harness
from harness.model.build import SHIPPED

PAD = 4


@pytest.fixture(scope="module")
def mine():
    model = AutoModelForCausalLM.from_pretrained(SHIPPED["tiny"]).eval()
    return harness.wrap(model, AutoTokenizer.from_pretrained(SHIPPED["tiny"]))


@pytest.fixture(scope="module")
def batch():
    ids = torch.randint(3, 1100, (2, 14), generator=torch.Generator().manual_seed(4))
    mask = torch.ones_like(ids)
    mask[0, :PAD] = 0
    return ids, mask


@torch.no_grad()
def filled(loaded, ids, mask, where=None):
    cache = DynamicCache(config=loaded.model.config)
    loaded.model(ids, attention_mask=mask, position_ids=where, past_key_values=cache)
    return cache


def counted(mask, start=0):
    return (mask.cumsum(1) - 1).clamp(min=0) + start


@pytest.mark.parametrize("told", [False, True])
def test_positions_counted_through_the_padding_are_moved_back(mine, batch, told) -> None:
    ids, mask = batch
    where = torch.arange(14).expand(2, -1) if told else None
    state = harness.from_cache(mine, filled(mine, ids, mask), ids, mask, where)
    assert state.next_position.tolist() == [14 - PAD, 14]
    right = harness.from_cache(mine, filled(mine, ids, mask, counted(mask)), ids, mask)
    seen = mask[:, None, :, None]
    for ours, theirs in zip(state.layers, right.layers, strict=True):
        assert ((ours.key - theirs.key) * seen).abs().max() < 1e-4
    assert harness.judge(mine, state, steps=4).verdict in ("exact", "equivalent")


def test_positions_that_nobody_told_or_that_are_wrong_are_asked_for(mine, batch) -> None:
    ids, mask = batch
    other = filled(mine, ids, mask, counted(mask, 9))
    with pytest.raises(harness.InputProblem, match=r"through the padding.*`position_ids`"):
        harness.from_cache(mine, other, ids, mask)
    with pytest.raises(harness.InputProblem, match="at these position_ids"):
        harness.from_cache(mine, other, ids, mask, counted(mask, 5))
    with pytest.raises(harness.InputProblem, match="leave a gap"):
        harness.from_cache(mine, other, ids, mask, counted(mask) * 2)
    with pytest.raises(harness.InputProblem, match=r"position_ids \[3\] does not fit"):
        harness.from_cache(mine, other, ids, mask, torch.arange(3))
    state = harness.from_cache(mine, other, ids, mask, counted(mask, 9))
    assert harness.judge(mine, state, steps=4).verdict in ("exact", "equivalent")


@pytest.mark.parametrize("option", ["tiny_gemma3", "tiny_hybrid"])
def test_where_the_past_is_not_whole_they_are_moved_back_too(batch, option) -> None:
    loaded = harness.load_model(option)
    ids = torch.cat([batch[0], batch[0], batch[0]], 1) % 200 + 3
    mask = torch.ones_like(ids)
    mask[0, :PAD] = 0
    state = harness.from_cache(loaded, filled(loaded, ids, mask), ids, mask)
    assert any(la.kept < la.seen for la in state.layers)
    assert harness.judge(loaded, state, steps=4).verdict in ("exact", "equivalent")
    with pytest.raises(harness.InputProblem, match="through the padding"):
        harness.from_cache(loaded, filled(loaded, ids, mask, counted(mask, 9)), ids, mask)


@pytest.mark.parametrize("option", ["tiny_gpt2", "tiny_sparse"])
def test_learned_positions_and_an_index_cannot_be_moved(batch, option) -> None:
    loaded = harness.load_model(option)
    ids, mask = batch[0] % 200 + 3, batch[1]
    harness.from_cache(loaded, filled(loaded, ids, mask, counted(mask)), ids, mask)
    with pytest.raises(harness.UnsupportedModel, match=r"cannot be moved.*cumsum"):
        harness.from_cache(loaded, filled(loaded, ids, mask), ids, mask)


def test_a_cache_of_ones_own_gone_wrong_is_told_plainly(mine, batch) -> None:
    ids, mask = batch
    cache = filled(mine, ids, mask)
    pairs = tuple((la.keys, la.values) for la in cache.layers)
    wrong = [
        (cache, ids.tolist(), None, "input_ids is a list"),
        (cache, ids - 2000, None, "a negative number"),
        (cache, ids[0], None, r"input_ids is \[14\]"),
        (None, ids, None, "past_key_values is None"),
        (pairs, ids, None, "past_key_values is a tuple"),
        (cache, ids[:1], None, "the cache has 2 rows, input_ids 1"),
        (cache, ids, mask.flip(1), "padding is on the left"),
    ]
    for past, fed, seen, message in wrong:
        with pytest.raises(harness.InputProblem, match=message):
            harness.from_cache(mine, past, fed, seen)
    with pytest.raises(harness.InputProblem) as problem:
        harness.from_cache(mine, cache, torch.cat([ids, ids[:, :2]], 1))
    assert "sequences" not in str(problem.value)  # two more are not what generate leaves


def test_a_model_or_a_tokenizer_that_is_none_is_told_plainly(mine, batch, tmp_path) -> None:
    model, tokenizer = mine.model, mine.tokenizer
    state = harness.from_cache(mine, filled(mine, *batch, counted(batch[1])), *batch)
    assert "\n" not in repr(state) and len(repr(state)) < 100
    assert "2 x 14 tokens, float32" in repr(state)
    harness.save_state(state, tmp_path / "mine")
    for call in (
        lambda: harness.judge(model, state),
        lambda: harness.resume(model, state),
        lambda: harness.load_state(tmp_path / "mine", model),
        lambda: harness.capture_text(model, "let"),
    ):
        with pytest.raises(harness.InputProblem, match=r"harness\.wrap\(model, tokenizer\)"):
            call()
    wrong = [
        ("some/path", tokenizer, "load_model"),
        (torch.nn.Linear(2, 2), tokenizer, "no model of the library's"),
        (mine, tokenizer, "wrapped already"),
        (model, "some/path", "the tokenizer is a str"),
    ]
    for inner, words, message in wrong:
        with pytest.raises(harness.InputProblem, match=message):
            harness.wrap(inner, words)
    small = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_layer=1, n_head=1, n_embd=8)).eval()
    with pytest.raises(harness.InputProblem, match="another model"):
        harness.wrap(small, tokenizer)
    for call in (
        lambda: harness.to_cache(model, state),
        lambda: harness.save_state("runs/mine", state),
    ):
        with pytest.raises(harness.InputProblem, match="no State: capture_text"):
            call()
    with pytest.raises(harness.InputProblem, match=r"harness\.wrap"):
        harness.load_model(model)
    with pytest.raises(harness.InputProblem, match="text is a NoneType"):
        harness.capture_text(mine, None)
