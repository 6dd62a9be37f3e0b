"""`to_cache` lends a state to `generate`, out of our sight: so the model is the one of the state, or it is refused."""

import copy

import pytest
import torch

import harness
from harness.errors import Misfit, RestoreRefused, UnsupportedModel
from harness.model import identity

TEXT = "let k be 5 . the bird sang in the tree ."


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


@pytest.fixture(scope="module")
def state(model):
    return harness.capture_text(model, TEXT)


@pytest.fixture
def other(model):
    """The library's object, one weight another."""
    changed = copy.deepcopy(model.model)
    with torch.no_grad():
        changed.model.layers[0].self_attn.q_proj.weight[0, 0] += 1
    return changed


def test_another_model_gets_no_cache_and_is_told_as_at_a_restore(
    model, state, other, tmp_path
) -> None:
    harness.save_state(state, tmp_path / "s")
    with pytest.raises(RestoreRefused) as restore:
        harness.load_state(tmp_path / "s", harness.wrap(other, model.tokenizer))
    for lent in (other, harness.wrap(other, model.tokenizer)):
        with pytest.raises(RestoreRefused) as refused:
            harness.to_cache(state, lent)
        assert refused.value.differences == restore.value.differences
        assert "what this state was captured from" in str(refused.value)
        assert "restore.strict=false" in str(refused.value)


def test_a_waived_difference_is_warned_of_and_generate_goes_on(state, other) -> None:
    with pytest.warns(UserWarning, match="not the one that the state was captured from") as said:
        cache = harness.to_cache(state, other, strict=False)
    assert [w.filename for w in said] == [__file__]
    ids = torch.cat([state.token_ids, torch.tensor([[5]])], 1)
    assert other.generate(ids, past_key_values=cache, max_new_tokens=2, pad_token_id=2).shape[1] > 2


def test_another_dtype_is_refused_and_no_waiver_makes_it_fit(state) -> None:
    narrow = harness.load_model("tiny", dtype="bfloat16")
    for lent in (narrow, narrow.model):
        with pytest.raises(RestoreRefused, match=r"dtype was float32, is bfloat16"):
            harness.to_cache(state, lent)
        with pytest.raises(UnsupportedModel, match=r"K/V is float32, the model bfloat16"):
            harness.to_cache(state, lent, strict=False)


def test_other_shapes_are_refused_and_no_waiver_makes_them_fit(state) -> None:
    gemma = harness.load_model("tiny_gemma3")
    with pytest.raises(RestoreRefused, match="another architecture"):
        harness.to_cache(state, gemma)
    with pytest.raises(Misfit, match="other layers or heads"):
        harness.to_cache(state, gemma, strict=False)


def test_a_difference_that_was_waived_once_is_waived_again_or_refused(
    model, state, other, tmp_path
) -> None:
    harness.save_state(state, tmp_path / "s")
    wrapped = harness.wrap(other, model.tokenizer)
    foreign = harness.load_state(tmp_path / "s", wrapped, strict=False)
    with pytest.raises(RestoreRefused):
        harness.to_cache(foreign, other)
    assert harness.to_cache(foreign, other, strict=False).get_seq_length() == state.tokens


def test_the_weights_of_a_model_are_read_once(model, state, monkeypatch) -> None:
    """As often as it is lent something; and once more where one of them changed."""
    own, read = copy.deepcopy(model.model), []
    weights = identity.weights
    monkeypatch.setattr(identity, "weights", lambda m: (read.append(m), weights(m))[1])
    for _ in range(3):
        harness.to_cache(state, own)
    assert len(read) == 1
    with torch.no_grad():
        own.model.norm.weight[0] += 1
    with pytest.raises(RestoreRefused, match="layer_norm"):
        harness.to_cache(state, own)


def test_a_cache_that_generate_filled_twice_is_told(model, state) -> None:
    """Given no new id, the library feeds all of them once more, without a word; given one, it goes on."""
    for more, length in (([], 2 * state.tokens), ([5], state.tokens + 1)):
        cache = harness.to_cache(state, model)
        ids = torch.cat([state.token_ids, torch.tensor([more], dtype=torch.int64)], 1)
        out = model.model.generate(
            ids, past_key_values=cache, max_new_tokens=3, pad_token_id=2, eos_token_id=[]
        )
        assert cache.get_seq_length() == length + 2
        if more:
            harness.from_cache(model, cache, out[:, :-1])
        else:
            with pytest.raises(harness.InputProblem, match="feeds all of them once more"):
                harness.from_cache(model, cache, out[:, :-1])


def test_a_cache_that_was_pruned_by_hand_is_told_the_way(model, state) -> None:
    cache = harness.to_cache(state, model)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, ::2], layer.values[:, :, ::2]
    kept = torch.arange(state.tokens)[None, ::2]
    for ids, where in ((state.token_ids, None), (state.token_ids[:, ::2], kept)):
        with pytest.raises(harness.InputProblem, match=r"to harness\.prune_state"):
            harness.from_cache(model, cache, ids, position_ids=where)
