"""A cache that is not what its ids give is refused, wherever it went wrong; healthy ones never are."""

import copy

import pytest
import torch
from transformers import DynamicCache

import harness
from harness.pipeline import refill
from harness.pipeline.noise import noise

TOKENS = 40


@pytest.fixture(scope="module")
def mine():
    return harness.load_model("tiny")


@pytest.fixture(scope="module")
def ids():
    return torch.randint(3, 900, (2, TOKENS), generator=torch.Generator().manual_seed(6))


@torch.no_grad()
def filled(loaded, ids, mask=None, where=None, split=None):
    cache = DynamicCache(config=loaded.model.config)
    for part in range(0, ids.shape[1], split or ids.shape[1]):
        more = slice(part, part + (split or ids.shape[1]))
        seen = None if mask is None else mask[:, : more.stop]
        at = None if where is None else where[:, more]
        loaded.model(ids[:, more], attention_mask=seen, position_ids=at, past_key_values=cache)
    return cache


@pytest.mark.parametrize("token", [0, TOKENS // 2, TOKENS - 1])
def test_a_wrong_id_is_named_by_its_token(mine, ids, token) -> None:
    cache, wrong = filled(mine, ids), ids.clone()
    harness.from_cache(mine, cache, ids)
    wrong[1, token] += 1
    with pytest.raises(harness.InputProblem, match=rf"key of token {token} in row 1, layer 0"):
        harness.from_cache(mine, cache, wrong)


@pytest.mark.filterwarnings("error")
def test_a_cache_that_carries_gradients_is_refused_without_a_warning(mine, ids) -> None:
    cache = filled(mine, ids)
    cache.layers[1].values = cache.layers[1].values.requires_grad_() * 1.1
    with pytest.raises(harness.InputProblem, match="value of token 0 in row 0, layer 1"):
        harness.from_cache(mine, cache, ids)


def test_a_cache_of_another_model_of_the_same_shape_is_refused(mine, ids) -> None:
    cache = harness.to_cache(harness.from_cache(mine, filled(mine, ids), ids), mine)
    other = copy.deepcopy(mine.model)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 1e-3)
    with pytest.raises(harness.InputProblem, match="Give the model and exactly the ids"):
        harness.from_cache(harness.wrap(other, mine.tokenizer), cache, ids)
    harness.from_cache(harness.wrap(copy.deepcopy(mine.model), mine.tokenizer), cache, ids)


def test_one_damaged_row_of_values_is_found(mine, ids) -> None:
    cache = filled(mine, ids)
    cache.layers[1].values = cache.layers[1].values.clone()
    cache.layers[1].values[0, 0, 7] += 0.01
    with pytest.raises(harness.InputProblem, match="value of token 7 in row 0, layer 1"):
        harness.from_cache(mine, cache, ids)


def test_positions_and_a_mask_that_were_left_out_are_asked_for(mine, ids) -> None:
    ahead = torch.arange(5, TOKENS + 5).expand(2, -1)
    with pytest.raises(harness.InputProblem, match="`position_ids` of the forward"):
        harness.from_cache(mine, filled(mine, ids, where=ahead), ids)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    where = (mask.cumsum(1) - 1).clamp(min=0)
    with pytest.raises(harness.InputProblem, match="`attention_mask`"):
        harness.from_cache(mine, filled(mine, ids, mask, where), ids)


def test_beyond_what_is_computed_again_the_last_token_still_speaks(mine, ids, monkeypatch) -> None:
    monkeypatch.setattr(refill, "WHOLE", 16)
    cache, wrong = filled(mine, ids), ids.clone()
    harness.from_cache(mine, cache, ids)
    wrong[0, -1] += 1
    with pytest.raises(harness.InputProblem, match="the last token is off"):
        harness.from_cache(mine, cache, wrong)


def test_noise_is_measured_once_per_model_and_again_where_a_cache_is_beyond_it(
    mine, ids, monkeypatch
) -> None:
    asked = []
    monkeypatch.setattr(refill, "noise", lambda *a: asked.append(1) or noise(*a))
    refill._known.clear()
    for _ in range(2):
        harness.from_cache(mine, filled(mine, ids), ids)
    assert len(asked) == 1
    wrong = ids.clone()
    wrong[0, 3] += 1
    with pytest.raises(harness.InputProblem, match="not what these ids give"):
        harness.from_cache(mine, filled(mine, ids), wrong)
    assert len(asked) == 2  # over these very tokens, before anybody is told


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("option", ["tiny", "tiny_gemma3", "tiny_hybrid"])
def test_a_healthy_cache_filled_in_pieces_is_taken(ids, option, dtype) -> None:
    loaded = harness.load_model(option, dtype=dtype)
    ids = ids % 200 + 3
    harness.from_cache(loaded, filled(loaded, ids, split=9), ids)
    wrong = ids.clone()
    wrong[0, -1] += 1
    with pytest.raises(harness.InputProblem, match="not what these ids give"):
        harness.from_cache(loaded, filled(loaded, ids, split=9), wrong)
